import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.advice.sites import NODE_KEYS, SITE_KEYS, get_site, list_sites, load_sites, parse_sites
from foretell.core.errors import NotFoundError, SiteError
from foretell.core.site import Billing, NodeType, Site

DOCS = (Path(__file__).parents[2] / "docs" / "sites.md").read_text()
MINIMAL = """
[sites.mine]
title = "Mine"
scheduler = "slurm"
[sites.mine.nodes.thin]
cores = 4
memory = "8GB"
"""
SHIPPED = [pytest.param(site, id=site.name) for site in list_sites()]


def mistakes_of(text: str) -> dict[str, str]:
    with pytest.raises(SiteError) as caught:
        parse_sites(text, source="my.toml")
    return {mistake.place: mistake.found for mistake in caught.value.mistakes}


class TestCatalogue:
    def test_centres_and_clusters_can_be_chosen(self) -> None:
        names = {site.name for site in list_sites()}
        assert {"osc", "tacc", "aws"} < names
        assert {"owens", "pitzer", "ascend", "cardinal", "stampede3", "frontera", "lonestar6", "vista"} < names

    @pytest.mark.parametrize("site", SHIPPED)
    def test_every_site_says_where_its_figures_come_from(self, site: Site) -> None:
        assert re.fullmatch(r"20\d\d-\d\d(-\d\d)?", site.as_of)
        assert "https://" in site.source
        assert site.notes

    @pytest.mark.parametrize("site", SHIPPED)
    def test_every_node_type_is_priced_and_plausible(self, site: Site) -> None:
        for node in site.node_types:
            prices = {Billing.CORE_HOURS: node.price_per_core_h, Billing.NODE_HOURS: node.price_per_node_h}
            assert prices[node.billing] > 0
            assert 2**29 <= node.memory_bytes / node.cores <= 2**36
            assert node.cpu_model
            assert node.cpu_mhz
            assert bool(node.gpus) == bool(node.gpu_model) == bool(node.gpu_memory_bytes)
            assert node.max_walltime_s or site.scheduler == "shell"

    @pytest.mark.parametrize("site", SHIPPED)
    def test_a_core_owns_its_share_of_memory(self, site: Site) -> None:
        for node in site.node_types:
            if node.memory_per_core_bytes:
                assert node.memory_per_core_bytes * node.cores == pytest.approx(node.memory_bytes, rel=0.01)

    def test_a_cluster_is_the_part_of_its_centre(self) -> None:
        osc, pitzer = get_site("osc"), get_site("pitzer")
        assert set(pitzer.node_types) == {node for node in osc.node_types if node.cluster == "pitzer"}
        assert (pitzer.currency, pitzer.scheduler, pitzer.source) == (osc.currency, osc.scheduler, osc.source)

    def test_no_job_is_sent_to_a_cluster_that_is_retired(self) -> None:
        assert not any("owens" in node.name for node in get_site("osc").node_types)

    def test_a_node_type_is_found_by_its_name_where_partitions_share_theirs(self) -> None:
        osc = get_site("osc")
        found = osc.find_node_type("cardinal-gpu")
        assert found is not None
        assert (found.cluster, found.partition) == ("cardinal", "gpu")
        assert len([node for node in osc.node_types if node.partition == "gpu"]) == 2

    def test_an_unknown_site_lists_the_known(self) -> None:
        with pytest.raises(NotFoundError, match=r"'ocs'.*pitzer.*--site-file"):
            get_site("ocs")


class TestParsing:
    def test_defaults_fill_what_a_node_type_leaves_out(self) -> None:
        text = MINIMAL + '[sites.mine.nodes.fat]\ncores = 8\n[sites.mine.defaults]\nmemory = "1GB"\n'
        thin, fat = parse_sites(text, source="my.toml")[0].node_types
        assert (thin.memory_bytes, fat.memory_bytes) == (8 * 2**30, 2**30)

    def test_a_partition_is_named_after_its_node_type(self) -> None:
        node = parse_sites(MINIMAL, source="my.toml")[0].node_types[0]
        assert node == NodeType(name="thin", partition="thin", cores=4, memory_bytes=8 * 2**30)

    def test_prices_are_exact(self) -> None:
        text = MINIMAL + 'billing = "core-hours"\nprice_per_core_h = 0.003\n'
        assert parse_sites(text, source="my.toml")[0].node_types[0].price_per_core_h == Decimal("0.003")

    def test_a_node_type_may_carry_its_bench(self) -> None:
        text = MINIMAL + "bench_version = 1\nbench_s = 0.674\nbench_disk_s = 2\n"
        node = parse_sites(text, source="my.toml")[0].node_types[0]
        assert node.bench == {"bench_version": 1, "bench_s": 0.674, "bench_disk_s": 2.0}

    def test_a_bench_without_its_version_is_a_mistake(self) -> None:
        found = mistakes_of(MINIMAL + "bench_s = 0.674\n")
        assert found == {"site mine, node thin, bench_version": "nothing"}

    @pytest.mark.parametrize("value", ["0", "-1.5", "nan", "inf", "3601", "true", '"0.6"'])
    def test_a_bench_is_a_time(self, value: str) -> None:
        assert list(mistakes_of(MINIMAL + f"bench_version = 1\nbench_s = {value}\n")) == [
            "site mine, node thin, bench_s"
        ]

    def test_all_mistakes_come_at_once(self) -> None:
        found = mistakes_of("""
            [sites.mine]
            scheduler = "pbs"
            colour = "red"
            [sites.mine.nodes.thin]
            cores = -1
            memory = nan
            billing = "node-hours"
            [sites.mine.nodes.fat]
            cores = true
            max_walltime = "soon"
        """)
        assert found == {
            "site mine": "the unknown key 'colour'",
            "site mine, scheduler": "'pbs'",
            "site mine, title": "nothing",
            "site mine, node thin, cores": "-1",
            "site mine, node thin, memory": "NaN",
            "site mine, node thin, price_per_node_h": "nothing",
            "site mine, node fat, cores": "true",
            "site mine, node fat, max_walltime": "'soon'",
            "site mine, node fat, memory": "nothing",
        }

    def test_an_unknown_key_lists_the_known(self) -> None:
        with pytest.raises(SiteError, match=r"unknown key 'core'; expected one of partition, cluster, cores"):
            parse_sites(MINIMAL + "core = 4\n", source="my.toml")

    def test_a_syntax_mistake_has_its_line(self) -> None:
        with pytest.raises(SiteError) as caught:
            parse_sites("[sites.mine]\ntitle Mine\n", source="my.toml")
        assert caught.value.mistakes[0].line == 2

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("cores", "0"),
            ("cores", "1_000_001"),
            ("cores", "0x" + "f" * 5000),
            ("cores", "2.0"),
            ("gpus", "-1"),
            ("memory", '"0GB"'),
            ("memory", '"2000TB"'),
            ("memory", "1" + "0" * 400),
            ("cpu_mhz", "inf"),
            ("cpu_mhz", "2.4"),
            ("max_walltime", '"400d"'),
            ("price_per_core_h", "-0.1"),
            ("price_per_core_h", "1e999999999999999999999"),
            ("price_per_core_h", "true"),
            ("partition", '"gpu\\n#SBATCH --evil"'),
            ("partition", '""'),
            ("gpu_model", '"a\\u001b[31m"'),
            ("whole_node", '"yes"'),
            ("billing", "1"),
        ],
    )
    def test_a_value_out_of_bounds_is_refused_at_its_place(self, key: str, value: str) -> None:
        kept = "\n".join(line for line in MINIMAL.splitlines() if not line.startswith(f"{key} ="))
        assert list(mistakes_of(f"{kept}\n{key} = {value}\n")) == [f"site mine, node thin, {key}"]

    def test_two_node_types_in_one_partition_are_refused(self) -> None:
        text = MINIMAL + '[sites.mine.nodes.fat]\npartition = "thin"\ncores = 8\nmemory = "1GB"\n'
        assert mistakes_of(text) == {"site mine": "2 node types in partition thin"}

    def test_unless_the_requested_gpus_distinguish_them(self) -> None:
        text = MINIMAL + '[sites.mine.nodes.gpu]\npartition = "thin"\ncores = 8\nmemory = "1GB"\ngpus = 2\n'
        (site,) = parse_sites(text, source="my.toml")
        assert [(node.name, node.partition) for node in site.node_types] == [("thin", "thin"), ("gpu", "thin")]
        more = text + '[sites.mine.nodes.more]\npartition = "thin"\ncores = 8\nmemory = "1GB"\ngpus = 4\n'
        assert mistakes_of(more) == {"site mine": "2 node types in partition thin"}

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "sites = 1",
            "[sites]",
            "[sites.a]",
            "[[sites]]",
            "[sites]\na = []",
            "x = " + "[" * 5000,
            "x = " + "1" * 5000,
            MINIMAL.replace("mine", '"my site"'),
            MINIMAL + "script = { account = 'me' }",
        ],
    )
    def test_a_file_of_another_shape_is_refused(self, text: str) -> None:
        assert mistakes_of(text)

    @given(
        cores=st.integers(1, 10**6),
        megabytes=st.integers(1, 2**30),
        price=st.decimals(0, 10**6, allow_nan=False, allow_infinity=False, places=6),
        hours=st.integers(1, 8784),
        title=st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1),
    )
    def test_what_is_written_is_read(self, cores: int, megabytes: int, price: Decimal, hours: int, title: str) -> None:
        node = {
            "cores": cores,
            "memory": f"{megabytes}MB",
            "max_walltime": f"{hours}h",
            "billing": "node-hours",
            "price_per_node_h": f"{price:f}",
        }
        table = {"title": title, "scheduler": "shell", "nodes": {"n": node}}
        (site,) = parse_sites(_render_toml({"sites": {"mine": table}}), source="my.toml")
        (read,) = site.node_types
        assert (site.title, read.cores, read.memory_bytes) == (title, cores, megabytes * 2**20)
        assert (read.max_walltime_s, read.price_per_node_h) == (hours * 3600, price)

    @given(st.text())
    def test_any_text_is_a_site_or_a_site_error(self, text: str) -> None:
        _parse_or_refuse(text)

    @given(st.data())
    def test_any_values_are_a_site_or_a_site_error(self, data: st.DataObject) -> None:
        site = data.draw(st.dictionaries(_keys([*SITE_KEYS, "extra"]), _values(), max_size=5))
        defaults = data.draw(st.dictionaries(_keys([*NODE_KEYS, "extra"]), _values(), max_size=5))
        nodes = data.draw(
            st.dictionaries(
                _names(),
                st.dictionaries(_keys([*NODE_KEYS, "extra"]), _values(), max_size=8),
                max_size=3,
            )
        )
        site |= {"defaults": defaults, "nodes": nodes}
        _parse_or_refuse(_render_toml({"sites": {data.draw(_names()): site}}))


def _parse_or_refuse(text: str) -> None:
    try:
        sites = parse_sites(text, source="any.toml")
    except SiteError as error:
        refusal = str(error)
    else:
        assert all(site.node_types for site in sites)
        return
    assert "found" in refusal
    assert all(line.isprintable() for line in refusal.split("\n"))


def _names() -> st.SearchStrategy[str]:
    return st.sampled_from(["mine", "a.b", "", "two words", "x\n", '"', "ü", "n" * 100])


def _keys(known: list[str]) -> st.SearchStrategy[str]:
    return st.sampled_from(known)


def _values() -> st.SearchStrategy[Any]:
    scalars = (
        st.integers()
        | st.floats()
        | st.booleans()
        | st.text(max_size=20)
        | st.dates()
        | st.sampled_from(
            ["slurm", "core-hours", "node-hours", "4GB", "-4GB", "1e400GB", "2h", "nan", "0.003", 10**500]
        )
    )
    return st.recursive(
        scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_names(), inner, max_size=2), max_leaves=4
    )


def _render_toml(value: Any) -> str:
    return "\n".join(f"{_render_string(name)} = {_render_value(item)}" for name, item in value.items())


def _render_value(value: Any) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f"{_render_string(name)} = {_render_value(item)}" for name, item in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_render_value, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return _render_string(value) if isinstance(value, str) else str(value)


def _render_string(text: str) -> str:
    return '"' + "".join(f"\\U{ord(char):08x}" for char in text if not 0xD800 <= ord(char) <= 0xDFFF) + '"'


class TestFiles:
    @pytest.fixture
    def write(self, tmp_path: Path) -> Any:
        def write(text: str, name: str = "my.toml") -> Path:
            path = tmp_path / name
            path.write_text(text)
            return path

        return write

    def test_a_site_of_a_file_joins_the_catalogue(self, write: Any) -> None:
        assert get_site("mine", extra_files=[write(MINIMAL)]).title == "Mine"
        assert "mine" not in {site.name for site in list_sites()}

    @pytest.mark.parametrize("name", ["osc", "pitzer"])
    def test_a_site_of_a_file_replaces_a_shipped_one(self, write: Any, name: str) -> None:
        site = get_site(name, extra_files=[write(MINIMAL.replace("mine", name))])
        assert (site.title, len(site.node_types)) == ("Mine", 1)

    def test_a_later_file_wins(self, write: Any) -> None:
        files = [write(MINIMAL, "a.toml"), write(MINIMAL.replace("Mine", "Ours"), "b.toml")]
        assert get_site("mine", extra_files=files).title == "Ours"

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(NotFoundError, match=r"site file.*gone\.toml"):
            load_sites([tmp_path / "gone.toml"])

    def test_a_folder_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(SiteError, match=r"directory; expected a readable TOML file"):
            load_sites([tmp_path])

    def test_another_encoding_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "latin.toml").write_bytes("# Universität".encode("latin-1"))
        with pytest.raises(SiteError, match="utf-8"):
            load_sites([tmp_path / "latin.toml"])

    def test_a_byte_order_mark_does_no_harm(self, tmp_path: Path) -> None:
        (tmp_path / "bom.toml").write_text(MINIMAL, encoding="utf-8-sig")
        assert load_sites([tmp_path / "bom.toml"])

    def test_a_path_no_file_can_have_is_refused(self) -> None:
        with pytest.raises(SiteError):
            load_sites([Path("a\0b")])


class TestDocumentation:
    def test_the_example_is_a_site_file(self) -> None:
        (example,) = re.findall(r"```toml\n(.*?)```", DOCS, flags=re.DOTALL)
        (site,) = parse_sites(example, source="docs/sites.md")
        assert [node.partition for node in site.node_types] == ["thin", "gpu"]
        assert site.script == {"account": "lab42"}

    def test_every_key_is_described(self) -> None:
        assert [key for key in (*SITE_KEYS, "defaults", "nodes", *NODE_KEYS) if f"`{key}`" not in DOCS] == []

    def test_every_shipped_site_is_listed_with_its_date(self) -> None:
        rows = [line for line in DOCS.splitlines() if line.startswith("|")]
        for site in list_sites():
            assert any(f"`{site.name}`" in row.split("|")[1] and site.as_of in row for row in rows), site.name

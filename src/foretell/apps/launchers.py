"""Programs that start programs (``srun``, ``mpirun``, ``torchrun``), and options that count the resources of a run."""

import enum
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from foretell.apps._nodes import is_on_path

SCRIPTS = (".py", ".sh", ".jl", ".R", ".pl", ".m")
THREAD_VARIABLES = frozenset(
    f"{library}_NUM_THREADS" for library in ("OMP", "MKL", "OPENBLAS", "BLIS", "NUMEXPR", "NUMBA", "RAYON", "JULIA")
)


class Counted(enum.Enum):
    """What an option counts. Cores and GPUs of ``resources`` are those of one node."""

    NODES = enum.auto()
    TASKS = enum.auto()  # on all nodes together
    TASKS_PER_NODE = enum.auto()
    CPUS_PER_TASK = enum.auto()
    PROCESSES = enum.auto()  # that one task starts on its node
    THREADS = enum.auto()  # of one process
    GPUS = enum.auto()  # on all nodes together
    GPUS_PER_NODE = enum.auto()
    GPUS_PER_TASK = enum.auto()


_GPUS = frozenset({Counted.GPUS, Counted.GPUS_PER_NODE, Counted.GPUS_PER_TASK})


def _table(**options: str) -> dict[str, Counted]:
    return {option: Counted[counted.upper()] for counted, listed in options.items() for option in listed.split()}


def _set(options: str) -> frozenset[str]:
    return frozenset(options.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """A program that starts the one named after its own options.

    ``flags`` have no value, ``values`` one, ``pairs`` two; of other options it is guessed. ``operands`` are words
    before the program that are no options. ``may_use_gpus``: it is mostly used to start a process for each GPU.
    """

    counts: Mapping[str, Counted] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()
    values: frozenset[str] = frozenset()
    pairs: frozenset[str] = frozenset()
    operands: int = 0
    may_use_gpus: bool = False


# https://slurm.schedmd.com/srun.html
_SRUN = Launcher(
    counts=_table(
        nodes="-N --nodes",
        tasks="-n --ntasks",
        tasks_per_node="--ntasks-per-node --tasks-per-node",
        cpus_per_task="-c --cpus-per-task",
        gpus="-G --gpus",
        gpus_per_node="--gpus-per-node --gres",
        gpus_per_task="--gpus-per-task",
    ),
    flags=_set(
        "-E --preserve-env -H --hold -K --kill-on-bad-exit -k --no-kill -l --label -O --overcommit -Q --quiet -s "
        "--oversubscribe -u --unbuffered -v -vv -vvv --verbose -X --disable-status -Z --no-allocate --contiguous "
        "--exact --exclusive --interactive --multi-prog --overlap --pty --spread-job --use-min-nodes --whole"
    ),
    values=_set(
        "-A --account -B --extra-node-info -b --begin -C --constraint -D --chdir -d --dependency -e --error -F "
        "--nodefile -i --input -J --job-name -L --licenses -M --clusters -m --distribution -o --output -p --partition "
        "-q --qos -r --relative -S --core-spec -T --threads -t --time -W --wait -w --nodelist -x --exclude "
        "--cpu-bind --cpu-freq --export --gpu-bind --gpu-freq --gres-flags --hint --jobid --mem --mem-bind "
        "--mem-per-cpu --mem-per-gpu --mpi --network --prolog --epilog --reservation --task-epilog "
        "--task-prolog --tmp --wckey"
    ),
)
# Open MPI (https://docs.open-mpi.org/en/main/man-openmpi/man1/mpirun.1.html), MPICH and Intel MPI (mpiexec.hydra -help)
_MPIRUN = Launcher(
    counts=_table(
        tasks="-n -np --n --np -c",
        tasks_per_node="-N --N -npernode --npernode -ppn --ppn -perhost",
        cpus_per_task="-cpus-per-proc --cpus-per-proc -cpus-per-rank --cpus-per-rank",
    ),
    flags=_set(
        "--allow-run-as-root --bind-to-core --bind-to-socket --bind-to-none --bycore --bynode --byslot --bysocket "
        "--display-map --display-allocation --nolocal --nooversubscribe --novm --oversubscribe --report-bindings "
        "--tag-output --timestamp-output --use-hwthread-cpus -q -quiet --quiet -v -verbose --verbose -l -prepend-rank "
        "-genvall -genvnone -envall -envnone -bynode -byslot -nolocal -oversubscribe -tag-output -report-bindings"
    ),
    values=_set(
        "-x -H -host --host -hosts -hostfile --hostfile -machinefile --machinefile -f -rf -rankfile --rankfile "
        "-wd -wdir --wd --wdir -map-by --map-by -rank-by --rank-by -bind-to --bind-to -mapby -bindto --output-filename "
        "-output-filename --prefix -prefix -path --path -stdin --stdin -genvlist -envlist -iface -launcher "
        "-bootstrap -rmk -outfile-pattern -errfile-pattern -am --am -tune --tune -timeout --timeout -xterm --xterm"
    ),
    pairs=_set("-genv -env -mca --mca -gmca --gmca -pmixmca --pmixmca -prtemca --prtemca"),
)
# https://docs.pytorch.org/docs/stable/elastic/run.html
_TORCHRUN = Launcher(
    counts=_table(
        nodes="--nnodes",
        processes="--nproc-per-node --nproc_per_node",
    ),
    flags=_set("--standalone --no-python --no_python --run-path --run_path -m --module --use-env --use_env"),
    values=_set(
        "--rdzv-backend --rdzv_backend --rdzv-endpoint --rdzv_endpoint --rdzv-id --rdzv_id --rdzv-conf --rdzv_conf "
        "--max-restarts --max_restarts --monitor-interval --monitor_interval --start-method --start_method --role "
        "--log-dir --log_dir -r --redirects -t --tee --node-rank --node_rank --master-addr --master_addr --master-port "
        "--master_port --local-addr --local_addr --local-ranks-filter --local_ranks_filter --logs-specs --logs_specs"
    ),
    may_use_gpus=True,
)
_ACCELERATE = Launcher(
    counts=_table(nodes="--num_machines --num-machines", tasks="--num_processes --num-processes"),
    flags=_set("--cpu --multi_gpu --multi-gpu --tpu --use_deepspeed --use_fsdp --quiet -q -m --module --no_python"),
    may_use_gpus=True,
)
_NICE = Launcher(values=_set("-n --adjustment"))
_NUMACTL = Launcher(
    flags=_set("-l --localalloc -b --balancing -a --all"),
    values=_set("-i --interleave -p --preferred -m --membind -N --cpunodebind -C --physcpubind"),
)

LAUNCHERS: Mapping[str, Launcher] = {
    "srun": _SRUN,
    **dict.fromkeys(("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "horovodrun"), _MPIRUN),
    "ibrun": Launcher(counts=_table(tasks="-n -np"), values=_set("-o")),
    "aprun": Launcher(
        counts=_table(tasks="-n", tasks_per_node="-N", cpus_per_task="-d"), values=_set("-j -cc -S -L -m")
    ),
    "torchrun": _TORCHRUN,
    "torch.distributed.run": _TORCHRUN,
    "torch.distributed.launch": _TORCHRUN,
    "accelerate launch": _ACCELERATE,
    "deepspeed": Launcher(
        counts=_table(nodes="--num_nodes", gpus_per_node="--num_gpus"),
        values=_set("-H --hostfile -i --include -e --exclude --master_port --master_addr --launcher"),
    ),
    "nice": _NICE,
    "numactl": _NUMACTL,
    "taskset": Launcher(flags=_set("-c --cpu-list -a --all-tasks"), operands=1),
    "timeout": Launcher(values=_set("-k --kill-after -s --signal"), operands=1),
    "stdbuf": Launcher(values=_set("-i --input -o --output -e --error")),
    "env": Launcher(values=_set("-u --unset -C --chdir"), flags=_set("-i --ignore-environment")),
}

# Options of programs that start no other one. Short ones mean something else in other programs.
PROGRAMS: Mapping[str, Mapping[str, Counted]] = {
    **dict.fromkeys(("make", "gmake", "ninja", "ctest", "parallel"), _table(processes="-j --jobs --parallel")),
    "cmake": _table(processes="-j --parallel"),
    "snakemake": _table(processes="-c --cores -j --jobs"),
    **dict.fromkeys(("xz", "unxz", "zstd"), _table(threads="-T --threads")),
    **dict.fromkeys(("pigz", "pbzip2", "bowtie2", "hisat2"), _table(threads="-p --processes --threads")),
    "julia": _table(threads="-t --threads", processes="-p --procs"),
    "samtools": _table(threads="-@ --threads"),
    **dict.fromkeys(("bwa", "minimap2"), _table(threads="-t")),
    **dict.fromkeys(("gmx", "gmx_mpi"), _table(threads="-nt -ntomp", processes="-ntmpi")),
}

# Names of options with the same meaning in every program, with any prefix and separators.
_ANY_PROGRAM = _table(
    threads="cores ncores num_cores cpus ncpus num_cpus threads nthreads n_threads num_threads",
    processes="parallel n_jobs nproc np",
    gpus_per_node="gpus ngpus num_gpus n_gpus",
    nodes="nodes nnodes num_nodes n_nodes",
)

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_LONG = re.compile(r"(--?[A-Za-z@][A-Za-z0-9_.-]*)=(.*)", re.DOTALL)
_ATTACHED = re.compile(r"(-[A-Za-z@])([0-9]+)")
_COUNT = re.compile(r"((?:[A-Za-z][A-Za-z0-9_.-]*:)*)([1-9][0-9]{0,3})")  # also gpu:a100:2
_MODULE = "-m"
_SEPARATOR = "--"
_OTHER_DEVICES = "--gres"  # of which GPUs are one kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """A number in a command, ``text`` in the argument at ``place`` after the part ``before`` it.

    ``place`` is a position, or the name of a variable. ``number`` is ``None`` where it cannot be read.
    """

    place: int | str
    counted: Counted
    number: int | None
    before: str = ""
    text: str
    may_use_gpus: bool = False


def find_program(words: Sequence[str]) -> int:
    """Return the index of the program that all launchers together start; the end if there is none."""
    return _list_launchers(words)[1]


def read_counts(words: Sequence[str]) -> list[Count]:
    """Return every number of nodes, tasks, cores, threads or GPUs in the arguments of a command, in order."""
    launchers, program = _list_launchers(words)
    counts = [count for launcher, start, end in launchers for count in _read_launcher(launcher, words, start, end)]
    name = Path(words[program]).name if program < len(words) else ""
    return [*counts, *_read_program(PROGRAMS.get(name, {}), words, program)]


def read_assignment(word: str, place: int | str) -> Count | None:
    """Return the number of threads in an assignment such as ``OMP_NUM_THREADS=4``."""
    assignment = _ASSIGNMENT.fullmatch(word)
    if assignment is None or assignment[1] not in THREAD_VARIABLES:
        return None
    before = "" if isinstance(place, str) else f"{assignment[1]}="
    return _count(place, Counted.THREADS, before, assignment[2], word)


def _list_launchers(words: Sequence[str]) -> tuple[list[tuple[Launcher, int, int]], int]:
    """Return each launcher with the start and end of its own arguments, and the start of the program."""
    launchers: list[tuple[Launcher, int, int]] = []
    at = 0
    while found := _match_launcher(words, at):
        launcher, start = found
        end = _find_end(launcher, words, start)
        launchers.append((launcher, start, end))
        at = end
    return launchers, at


def _match_launcher(words: Sequence[str], at: int) -> tuple[Launcher, int] | None:
    name = Path(words[at]).name if at < len(words) else ""
    following = words[at + 1 : at + 3]
    if name.startswith("python") and len(following) == 2 and following[0] == _MODULE and following[1] in LAUNCHERS:
        return LAUNCHERS[following[1]], at + 3
    if following and f"{name} {following[0]}" in LAUNCHERS:
        return LAUNCHERS[f"{name} {following[0]}"], at + 2
    return (LAUNCHERS[name], at + 1) if name in LAUNCHERS else None


def _find_end(launcher: Launcher, words: Sequence[str], start: int) -> int:
    """Return the end of a launcher's own arguments."""
    at, operands = start, launcher.operands
    while at < len(words):
        word = words[at]
        if word == _SEPARATOR:
            return at + 1
        if word.startswith("-") and len(word) > 1:
            at += 1 + _count_values(launcher, words, at)
        elif _ASSIGNMENT.fullmatch(word):
            at += 1
        elif operands:
            at, operands = at + 1, operands - 1
        else:
            return at
    return len(words)


def _count_values(launcher: Launcher, words: Sequence[str], at: int) -> int:
    option = words[at]
    if option in launcher.pairs:
        return 2
    if option in launcher.values or option in launcher.counts:
        return 1
    if option in launcher.flags or re.search(r"=|^-[0-9]|^-[A-Za-z][0-9]", option) or at + 1 == len(words):
        return 0
    following = words[at + 1]
    return 0 if following.startswith("-") or _looks_like_a_program(following) else 1


def _looks_like_a_program(word: str) -> bool:
    return word.startswith(("./", "/")) or word.endswith(SCRIPTS) or is_on_path(word)


def _read_launcher(launcher: Launcher, words: Sequence[str], start: int, end: int) -> Iterator[Count]:
    for place in range(start, end):
        found = _read_option(launcher.counts, words, place, first=start)
        if found is not None:
            counted, before, value, text = found
            if text.startswith(_OTHER_DEVICES) and not value.startswith("gpu"):
                continue
            on_gpus = launcher.may_use_gpus and counted is not Counted.NODES
            yield _count(place, counted, before, value, text, may_use_gpus=on_gpus)
        elif assigned := read_assignment(words[place], place):
            yield assigned
        elif words[place - 1] in THREAD_VARIABLES:  # mpiexec -genv OMP_NUM_THREADS 4
            yield _count(place, Counted.THREADS, "", words[place], f"{words[place - 1]} {words[place]}")


def _read_program(options: Mapping[str, Counted], words: Sequence[str], program: int) -> Iterator[Count]:
    for place in range(program + 1, len(words)):
        found = _read_option(options, words, place, first=program + 1)
        if found is not None:
            counted, before, value, text = found
            yield _count(place, counted, before, value, text)
            continue
        named = _read_option(
            _spell_options(words[max(place - 1, program) : place + 1]), words, place, first=program + 1
        )
        if named is not None and _COUNT.fullmatch(named[2]):  # otherwise it is a normal parameter
            counted, before, value, text = named
            yield _count(place, counted, before, value, text)


def _spell_options(words: Iterable[str]) -> dict[str, Counted]:
    """Return the options in these arguments that count in any program, as they are written: ``--num-threads``."""
    options = (word.partition("=")[0] for word in words if word.startswith("-"))
    names = {option: re.sub(r"[^A-Za-z0-9_]", "_", option.lstrip("-")).lower() for option in options}
    return {option: _ANY_PROGRAM[name] for option, name in names.items() if name in _ANY_PROGRAM}


def _read_option(
    options: Mapping[str, Counted], words: Sequence[str], place: int, *, first: int
) -> tuple[Counted, str, str, str] | None:
    """Return what the argument at an index counts: the text before its value, the value, and its option."""
    word, before = words[place], words[place - 1] if place > first else ""
    if (match := _LONG.fullmatch(word) or _ATTACHED.fullmatch(word)) and match[1] in options:
        return options[match[1]], word.removesuffix(match[2]), match[2], word
    if before in options and not word.startswith("-"):
        return options[before], "", word, f"{before} {word}"
    return None


def _count(
    place: int | str, counted: Counted, before: str, value: str, text: str, *, may_use_gpus: bool = False
) -> Count:
    match = _COUNT.fullmatch(value)
    if match is None or (match[1] and counted not in _GPUS):
        return Count(place=place, counted=counted, number=None, text=text)
    return Count(
        place=place,
        counted=counted,
        number=int(match[2]),
        before=before + match[1],
        text=text,
        may_use_gpus=may_use_gpus,
    )

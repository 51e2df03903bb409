"""Asks Slurm: one program, one answer. What it says on failing becomes our error, with what to do next."""

import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType

from foretell.core.errors import SchedulerError
from foretell.measure.environment import build_environment

# Times as sacct is asked for and answers them: one form, whatever the user's own environment says. And all elements of
# an array that wait, however long their list: it would end in "..." after 64 characters.
_OUR_WAY = {"SLURM_TIME_FORMAT": "standard", "LC_ALL": "C.UTF-8", "SLURM_BITSTR_LEN": "0"}
# What a user may have set to change what these programs print or do by default.
_THEIR_WAY = re.compile(r"(SACCT|SQUEUE|SINFO|SBATCH|SCANCEL)_.*|SLURM_(CLUSTERS|JOB_NAME)")
_TIMEOUT_S = 120.0
_BLOCK = 1 << 20
_NO_CLUSTER = "Could not establish a configuration source"
_TRY_AGAIN = re.compile(
    r"unable to contact slurm|connection refused|communication (connection )?failure|socket timed out|"
    r"zero bytes were transmitted|temporarily (unable|unavailable)|problem talking to the database|"
    r"slurmdbd|unable to connect|transport endpoint|try again|connection timed out|backup controller",
    re.IGNORECASE,
)


def call(
    argv: Sequence[str], *, timeout_s: float = _TIMEOUT_S, environment: Mapping[str, str] = MappingProxyType({})
) -> str:
    """What the program printed; ``environment`` is added to ours.

    Raises:
        SchedulerError: if it is not there, fails, or does not answer in time; ``transient`` where waiting may help.
    """
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env=_environment(argv[0]) | dict(environment),
            timeout=timeout_s,
            check=False,
            start_new_session=True,  # Ctrl-C is for us: what was asked is answered
        )
    except FileNotFoundError:
        raise _missing(argv[0]) from None
    except subprocess.TimeoutExpired as exc:
        message = f"{argv[0]} did not answer within {timeout_s:.0f} s; Slurm may be overloaded, try again later"
        raise SchedulerError(message, transient=True) from exc
    if done.returncode:
        raise _refusal(argv[0], done.returncode, done.stderr)
    return done.stdout.decode("utf-8", errors="replace")


def call_all(*commands: Sequence[str]) -> list[str]:
    """What each program printed, all of them asked at the same time.

    Raises:
        SchedulerError: as :func:`call`.
    """
    with ThreadPoolExecutor(len(commands)) as pool:
        return list(pool.map(call, commands))


@contextmanager
def stream(argv: Sequence[str]) -> Iterator[Iterator[bytes]]:
    """What the program prints, in blocks while it prints it, for answers too large to hold.

    Raises:
        SchedulerError: if it is not there, or failed in the end.
    """
    with tempfile.TemporaryFile() as complaints:  # not a pipe: nobody reads it while the answer comes
        try:
            process = subprocess.Popen(
                argv, stdout=subprocess.PIPE, stderr=complaints, stdin=subprocess.DEVNULL, env=_environment(argv[0])
            )
        except FileNotFoundError:
            raise _missing(argv[0]) from None
        with process:
            assert process.stdout is not None
            try:
                yield iter(partial(process.stdout.read, _BLOCK), b"")
            except BaseException:
                process.kill()
                raise
        if process.returncode:
            complaints.seek(0)
            raise _refusal(argv[0], process.returncode, complaints.read())


def _environment(program: str) -> dict[str, str]:
    theirs = {name: value for name, value in build_environment().items() if not _THEIR_WAY.fullmatch(name)}
    return theirs if program == "sbatch" else theirs | _OUR_WAY  # what sbatch has, jobs have: it is the user's own


def _missing(program: str) -> SchedulerError:
    return SchedulerError(
        f"the program {program!r} is not found: this is no machine of a Slurm cluster; log in to one, or mend PATH"
    )


def _refusal(program: str, code: int, stderr: bytes) -> SchedulerError:
    text = stderr.decode("utf-8", errors="replace")
    lines = [re.sub(r"^\w+: (error: )?", "", line) for line in text.splitlines() if line.strip()]
    said = "; ".join(dict.fromkeys(lines)) or (
        f"exit code {code}, and nothing else" if code >= 0 else f"killed by signal {-code}"
    )
    if _NO_CLUSTER in said:
        return SchedulerError(
            f"{program} finds no cluster: this machine has Slurm's programs, but no slurm.conf; "
            f"log in to a node of the cluster, or name its file in SLURM_CONF"
        )
    was_killed = code < 0  # and may have done its work before
    return SchedulerError(f"{program}: {said}", transient=was_killed or _TRY_AGAIN.search(said) is not None)

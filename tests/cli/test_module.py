import subprocess
import sys


def test_python_m_foretell_is_the_command_line() -> None:
    done = subprocess.run([sys.executable, "-m", "foretell", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("foretell ")

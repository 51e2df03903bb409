"""Tables to files."""

from pathlib import Path

import pandas as pd

from foretell.errors import MissingExtraError, OutputError


def save_frame(frame: pd.DataFrame, path: Path) -> None:
    """Write a table as CSV or Parquet, by the file's ending.

    Raises:
        OutputError: if it ends otherwise, or cannot be written.
        MissingExtraError: if Parquet is wanted and its library is not there.
    """
    try:
        if path.suffix == ".csv":
            frame.to_csv(path, index=False)
        elif path.suffix == ".parquet":
            frame.to_parquet(path, index=False)
        else:
            raise OutputError(f"{str(path)!r}: its name must end in .csv or .parquet")
    except ImportError as exc:
        raise MissingExtraError("writing Parquet needs: pip install 'foretell[parquet]'") from exc
    except OSError as exc:
        if isinstance(exc, OutputError):
            raise
        raise OutputError(f"{path}: cannot be written ({exc.strerror or exc}); choose another place") from exc

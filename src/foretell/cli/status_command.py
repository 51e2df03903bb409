"""The commands ``foretell status`` and ``foretell cancel``."""

from foretell.cli._common import AppArgument, JsonOption, StoreOption, find_app, find_store
from foretell.cli._output import show, show_json

STATUS_EXAMPLES = "Examples: foretell status | foretell status myapp --json"
CANCEL_EXAMPLES = "Example: foretell cancel myapp"


def status(app: AppArgument = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show how an app's runs stand, those handed to Slurm included, and store what has ended."""
    from foretell.campaigns import api
    from foretell.campaigns.render import render_status

    name = find_app(app)
    found = api.status(name, store=find_store(store, name))
    if as_json:
        show_json(found)
    else:
        show([render_status(found)])


def cancel(app: AppArgument = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Cancel what Slurm has of an app's runs; what has ended is stored, the rest can be made again."""
    from foretell.campaigns import api
    from foretell.campaigns.render import render_cancellation

    name = find_app(app)
    done = api.cancel(name, store=find_store(store, name))
    if as_json:
        show_json(done)
    else:
        show([render_cancellation(done)])

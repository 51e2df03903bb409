"""What Foretell does, as Python: each function joins the stages it names."""

from foretell.advisor.policy import Cheapest, Fastest, choose_policy
from foretell.api.advice import find_site, list_sites, recommend, render_script
from foretell.api.campaign import generate, plan
from foretell.api.exchange import import_runs, list_runs
from foretell.api.learning import ask, build, predict
from foretell.api.proof import summarise, verify
from foretell.api.workspace import load_app
from foretell.apps.tables import Columns, read_table
from foretell.stores import open_store

__all__ = [
    "Cheapest",
    "Columns",
    "Fastest",
    "ask",
    "build",
    "choose_policy",
    "find_site",
    "generate",
    "import_runs",
    "list_runs",
    "list_sites",
    "load_app",
    "open_store",
    "plan",
    "predict",
    "read_table",
    "recommend",
    "render_script",
    "summarise",
    "verify",
]

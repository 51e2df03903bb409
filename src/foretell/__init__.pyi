"""The public names of Foretell: this is the one list of them."""

from foretell.advice.api import recommend as recommend
from foretell.advice.api import render_script as render_script
from foretell.advice.execution import JobRequest as JobRequest
from foretell.advice.execution import preview as preview
from foretell.advice.execution import run as run
from foretell.advice.policy import Cheapest as Cheapest
from foretell.advice.policy import Fastest as Fastest
from foretell.advice.site_lookup import find_site as find_site
from foretell.advice.verification import verify as verify
from foretell.apps.api import import_runs as import_runs
from foretell.apps.api import list_runs as list_runs
from foretell.apps.app_file import load_app as load_app
from foretell.apps.imported_runs import Columns as Columns
from foretell.campaigns.api import cancel as cancel
from foretell.campaigns.api import generate as generate
from foretell.campaigns.api import plan as plan
from foretell.campaigns.api import status as status
from foretell.core.app import Submission as Submission
from foretell.distributed.api import explore_consumption as explore_consumption
from foretell.distributed.api import predict_consumption as predict_consumption
from foretell.distributed.api import predict_placements as predict_placements
from foretell.distributed.consumption import Setting as Setting
from foretell.distributed.consumption import Strategy as Strategy
from foretell.distributed.learning import learn_consumption as learn_consumption
from foretell.history.api import group_history as group_history
from foretell.history.api import import_history as import_history
from foretell.history.api import list_history_apps as list_history_apps
from foretell.history.api import report_waste as report_waste
from foretell.measure.api import bench_machine as bench_machine
from foretell.measure.api import describe_machine as describe_machine
from foretell.observations.api import observe as observe
from foretell.runtimes.api import build as build
from foretell.runtimes.api import explain as explain
from foretell.runtimes.api import predict as predict
from foretell.steps.api import StepOptions as StepOptions
from foretell.steps.api import learn_device as learn_device
from foretell.steps.api import list_devices as list_devices
from foretell.steps.api import load_profile as load_profile
from foretell.steps.api import predict_workload as predict_workload
from foretell.steps.api import profile_workload as profile_workload
from foretell.steps.api import read_workload as read_workload
from foretell.steps.api import save_profile as save_profile
from foretell.stores import open_store as open_store

__all__: list[str]

from foretell.core.app import Submission


def test_a_cluster_among_options_is_the_cluster() -> None:
    assert Submission(options={"clusters": "fern", "qos": "long"}) == Submission(
        cluster="fern", options={"qos": "long"}
    )


def test_what_is_said_wins_over_what_is_below_it_however_it_was_said() -> None:
    said = Submission(account="mine", options={"clusters": "fern", "qos": "long"})
    below = Submission(account="theirs", cluster="moss", options={"qos": "normal", "exclusive": ""}, sample=True)
    assert said.over(below) == Submission(
        account="mine", cluster="fern", options={"qos": "long", "exclusive": ""}, sample=True
    )
    assert Submission().over(below) == below

"""Steps read from code are compared with recorded rows fairly."""

from benchmarks.capture import Row, align, write_params

from foretell.core.workload import Operator, StepPhase

CONV, RELU = Row("conv2d", (1, 2)), Row("relu", (4, 8))


def test_equal_sequences_agree() -> None:
    found = align([CONV, RELU, CONV], [CONV, RELU, CONV])
    assert (found.agreeing, found.rows, found.whole) == (3, 3, 1)


def test_a_call_may_stand_in_as_many_rows_as_it_has_kernels() -> None:
    norm = Row("normalize", (4, 8), 3)
    assert align([Row("normalize", (4, 8))] * 6, [norm, norm]).whole == 1
    assert align([Row("normalize", (4, 8))] * 7, [norm, norm]).whole == 0
    assert align([Row("normalize", (4, 8))], [norm, norm]).whole == 0


def test_lost_shapes_agree_with_all_and_other_shapes_do_not() -> None:
    assert align([Row("clone", ())], [Row("clone", (4, 3))]).whole == 1
    found = align([Row("clone", (4, 4))], [Row("clone", (4, 3))])
    assert (found.agreeing, dict(found.only_code), dict(found.only_recorded)) == (0, {"clone": 1}, {"clone": 1})


def test_what_only_one_side_has_is_counted_and_the_rest_still_compared() -> None:
    found = align([CONV, RELU, CONV], [CONV, Row("pad", (4,)), RELU, CONV])
    assert (found.agreeing, found.whole, dict(found.only_code)) == (3, 0, {"pad": 1})
    found = align([CONV, Row("pad", (4,)), RELU], [CONV, RELU])
    assert (found.agreeing, found.rows, dict(found.only_recorded)) == (2, 3, {"pad": 1})


def test_tensors_are_written_in_slots_as_they_were_recorded() -> None:
    linear = Operator(
        kind="linear", phase=StepPhase.FORWARD, inputs=((2, 8, 96), (384, 96), (384,)), output=(2, 8, 384)
    )
    assert write_params(linear) == (4, 2, 8, 96, 0, 0, 0, 0, 0, 0, 4, 384, 96, 0, 0, 0, 0, 0, 0, 0, 4, 384)
    conv = Operator(
        kind="conv2d",
        phase=StepPhase.FORWARD,
        inputs=((2, 3, 32, 32), (96, 3, 4, 4), (96,)),
        output=(2, 96, 8, 8),
        attributes=(("dilation", (1, 1)), ("groups", 1), ("padding", (0, 0)), ("stride", (4, 4))),
    )
    assert write_params(conv) == (2, 3, 32, 32, 96, 8, 8, 4, 4, 0, 0, 4, 4, 1, 1, 1, 4)

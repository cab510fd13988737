"""Arms as they are written on the command line."""

import pytest

from everlong.errors import EverlongError
from everlong.interventions.arms import describe_methods, parse_arm
from everlong.interventions.methods import CONFIGS, create


def test_settings_come_out_in_their_own_types():
    arm = parse_arm("correlated_noise,rank=0,mean=head,history_weight=0.5")
    assert (arm.method, dict(arm.settings)) == (
        "correlated_noise",
        {"rank": 0, "mean": "head", "history_weight": 0.5},
    )
    assert parse_arm("burn_in,gradient=on").settings["gradient"] is True
    assert parse_arm("state_passing,passed_roles=recurrent+shift").settings["passed_roles"] == ("recurrent", "shift")
    assert parse_arm("tbtt").settings == {}


def test_what_an_arm_leaves_open_can_be_set_for_all():
    assert parse_arm("random_noise,scale=0.3").takes("reset_probability")
    assert not parse_arm("random_noise,reset_probability=0.3").takes("reset_probability")
    assert not parse_arm("zero").takes("reset_probability")


@pytest.mark.parametrize("method", CONFIGS)
def test_help_names_every_method_and_its_defaults_can_be_written_as_they_stand_there(method):
    entry = next(entry for entry in describe_methods().split("; ") if entry.split(" ")[0] == method)
    settings = entry.partition(" (")[2].rstrip(")").split(", ") if " (" in entry else []
    arm = parse_arm(",".join([method, *settings]))
    assert create(method, seed=0, **arm.settings).config == CONFIGS[method]()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prayer", "unknown method 'prayer' in --methods; known: burn_in, "),
        ("random_noise,size=1", "'size=1' in --methods .* is no new setting=value of random_noise; it has .*scale"),
        ("random_noise,scale", "'scale' in --methods .* is no new setting=value"),
        ("random_noise,scale=1,scale=2", "'scale=2' in --methods .* is no new setting=value"),
        ("random_noise,scale=big", "scale is 'big' in --methods random_noise,scale=big; it must be a number"),
        ("correlated_noise,rank=1.5", "rank is '1.5' .*; it must be a whole number"),
        ("correlated_noise,mean=row", "mean is 'row' .*; it must be one of element, head"),
        ("burn_in,gradient=yes", "gradient is 'yes' .*; it must be on or off"),
        ("random_noise,scale=-1", "scale is -1.0; it must be at least 0"),
        ("zero,scale=1", "'scale=1' .* of zero; it has no settings"),
    ],
)
def test_what_cannot_be_an_arm_is_named(text, message):
    with pytest.raises(EverlongError, match=message):
        parse_arm(text)

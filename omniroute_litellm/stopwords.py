"""Words that say nothing about what a text is about."""

from typing import Final

ENGLISH: Final = frozenset(
    """
    a about above after again against all also am an and any are aren as at be because been before
    being below between both but by can cannot could couldn d did didn do does doesn doing don done
    down during each else ever few for from further get give go had hadn has hasn have haven having
    he hello help her here hers herself hey hi him himself his how i if in into is isn it its itself
    just kindly let like ll m make me might more most must my myself need no nor not now of off on
    once one only or other ought our ours ourselves out over own please re s same shall shan she
    should shouldn so some such t tell than thank thanks that the their theirs them themselves then
    there these they this those through to too under until up us use using ve very want was wasn we
    were weren what when where which while who whom why will with won would wouldn yes you your
    yours yourself yourselves
    """.split()
)
"""Function words, the pieces that apostrophes leave behind, and the verbs of asking."""

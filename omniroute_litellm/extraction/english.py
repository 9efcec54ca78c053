"""English."""

from typing import Final

from omniroute_litellm.extraction.patterns import Language, Pattern
from omniroute_litellm.types import Category, Polarity

_I: Final = r"(?:I|we)"
_HAVE: Final = r"(?:['’ʼ]?ve|\ have)"
_NOT: Final = r"(?:do|does)(?:n['’ʼ]?t|\ not)"
_STRESS: Final = (
    r"(?:(?:really|personally|strongly|absolutely|also|still|just|much|definitely|truly|"
    r"particularly|especially|actually|do|quite|totally|simply|both|all|kind\ of|sort\ of)\ ){0,2}"
)
_WILL: Final = (
    r"(?:(?:I|we)(?:['’ʼ]ll|\ will|['’ʼ]m\ going\ to|\ am\ going\ to|['’ʼ]?re\ going\ to|"
    r"\ are\ going\ to|['’ʼ]m\ gonna|['’ʼ]re\ gonna))"
)
_WILL_NOT: Final = (
    r"(?:(?:I|we)(?:\ won['’ʼ]?t|\ will\ not|\ will\ never|['’ʼ]ll\ not|['’ʼ]ll\ never|"
    r"['’ʼ]m\ not\ going\ to|\ am\ not\ going\ to|['’ʼ]re\ not\ going\ to|\ are\ not\ going\ to|"
    r"\ aren['’ʼ]?t\ going\ to))"
)
_ADOPT: Final = (
    r"(?:use|be\ using|adopt|go\ with|stick\ (?:with|to)|switch\ to|choose|pick|stay\ with)"
)
_SOON: Final = r"(?:(?:now|also|just|definitely|always|only)\ ){0,2}"
_DONE: Final = r"(?:(?:finally|just|already|recently|also|now)\ ){0,2}"
_CHOSE: Final = r"(?:chose|picked|selected|went\ with|opted\ for|settled\ on|went\ for|decided\ on)"
_CHOSEN: Final = (
    r"(?:chosen|picked|selected|gone\ with|opted\ for|settled\ on|gone\ for|decided\ on)"
)
_OFTEN: Final = r"(?:usually|always|typically|often|frequently|regularly|generally|normally|mostly)"
_OBJECT: Final = r"(?P<object>\S.*)"


def _pattern(name: str, category: Category, expression: str, *, denies: bool = False) -> Pattern:
    # Blanks stand for any run of white space; the escaped ones above are the same.
    blanks = expression.replace(r"\ ", " ").replace(" ", r"\s{1,20}")
    polarity = Polarity.NEGATIVE if denies else Polarity.POSITIVE
    return Pattern(f"en.{name}", category, polarity, blanks)


_PREFERENCE: Final = (
    _pattern("prefer", Category.PREFERENCE, rf"{_I} {_STRESS}(?:prefer|favou?r) {_OBJECT}"),
    _pattern("like", Category.PREFERENCE, rf"{_I} {_STRESS}(?:like|love|enjoy|adore) {_OBJECT}"),
    _pattern(
        "have_preferred",
        Category.PREFERENCE,
        rf"{_I}{_HAVE} (?:always )?(?:preferred|liked|loved|enjoyed) {_OBJECT}",
    ),
    _pattern(
        "fan",
        Category.PREFERENCE,
        rf"(?:I['’ʼ]?m|I am|we['’ʼ]?re|we are) an? (?:big |huge |great )?fan of {_OBJECT}",
    ),
    _pattern(
        "favorite",
        Category.PREFERENCE,
        r"my (?:all-time |absolute |personal )?favou?rite(?: [\w.+#/-]{1,30}){0,4}? "
        rf"(?:is|are|remains|has always been) {_OBJECT}",
    ),
    _pattern(
        "not_like",
        Category.PREFERENCE,
        rf"{_I} {_STRESS}{_NOT} {_STRESS}(?:like|love|enjoy|prefer|care for) {_OBJECT}",
        denies=True,
    ),
    _pattern(
        "hate",
        Category.PREFERENCE,
        rf"{_I} {_STRESS}(?:try to )?(?:hate|dislike|detest|loathe|despise|avoid) {_OBJECT}",
        denies=True,
    ),
    _pattern(
        "cannot_stand",
        Category.PREFERENCE,
        rf"{_I} {_STRESS}(?:can['’ʼ]?t|cannot|can not) (?:stand|bear) {_OBJECT}",
        denies=True,
    ),
)
_DECISION: Final = (
    _pattern("will_use", Category.DECISION, rf"{_WILL} {_SOON}{_ADOPT} {_OBJECT}"),
    _pattern(
        "will_not_use", Category.DECISION, rf"{_WILL_NOT} {_SOON}{_ADOPT} {_OBJECT}", denies=True
    ),
    _pattern(
        "going_with",
        Category.DECISION,
        r"(?:I['’ʼ]?m|I am|we['’ʼ]?re|we are) (?:going with|sticking with|switching to) "
        rf"{_OBJECT}",
    ),
    _pattern(
        "decided_against",
        Category.DECISION,
        rf"{_I}{_HAVE}? {_DONE}decided (?:against|not to) {_OBJECT}",
        denies=True,
    ),
    _pattern("decided", Category.DECISION, rf"{_I}{_HAVE}? {_DONE}decided (?:to|on) {_OBJECT}"),
    _pattern("chose", Category.DECISION, rf"{_I} {_DONE}{_CHOSE} {_OBJECT}"),
    _pattern("chosen", Category.DECISION, rf"{_I}{_HAVE} {_DONE}{_CHOSEN} {_OBJECT}"),
)
_PATTERN: Final = (
    _pattern("often", Category.PATTERN, rf"{_I} (?:almost |nearly )?{_OFTEN} {_OBJECT}"),
    _pattern(
        "am_often",
        Category.PATTERN,
        r"(?:I['’ʼ]?m|I am|we['’ʼ]re|we are) (?:almost |nearly )?"
        rf"{_OFTEN} {_OBJECT}",
    ),
    _pattern("often_first", Category.PATTERN, rf"{_OFTEN},? {_I} {_OBJECT}"),
    _pattern("not_often", Category.PATTERN, rf"{_I} {_NOT} {_OFTEN} {_OBJECT}", denies=True),
    _pattern("never", Category.PATTERN, rf"{_I} (?:almost |nearly )?never {_OBJECT}", denies=True),
    _pattern(
        "am_never",
        Category.PATTERN,
        r"(?:I['’ʼ]?m|I am|we['’ʼ]re|we are) (?:almost )?never "
        rf"{_OBJECT}",
        denies=True,
    ),
    _pattern("tend_not", Category.PATTERN, rf"{_I} tend not to {_OBJECT}", denies=True),
    _pattern("tend", Category.PATTERN, rf"{_I} tend to {_OBJECT}"),
)

_SUBJECT: Final = r"(?:I|we|you|he|she|they|it|there|this|that|my|our|your|his|her|their)\b"
_ASKING: Final = (
    r"(?:please|can|could|would|should|will|do|does|did|is|are|what|which|who|how|why|where|when|"
    r"let['’ʼ]?s|thanks|thank|so|but|because|although|though|since|whereas|unless|if|yet)\b"
)

ENGLISH: Final = Language(
    name="en",
    patterns=(*_PREFERENCE, *_DECISION, *_PATTERN),
    abbreviation=r"\b(?:e\.g|i\.e|etc|vs|cf|approx|mr|mrs|ms|dr|st|no)$",
    boundary=(
        rf"[,;:]\s{{1,20}}(?:(?:and|or|so|but|then|which)\s{{1,20}})?(?={_SUBJECT}|{_ASKING})"
        rf"|,?\s{{1,20}}(?:and|or|so|then|while)\s{{1,20}}(?={_SUBJECT})"
        r"|,?\s{1,20}(?=(?:but|because|although|though|since|whereas|even\ though|so\ that|"
        r"cause|however)\b)"
        r"|\s{1,20}[-–—]{1,3}\s{1,20}|[;—]|\s{1,20}\("
    ),
    opening=(
        r"(?:[-*•–]|\d{1,2}[.)])\s{1,20}"
        r"|(?:and|but|so|well|ok|okay|yes|yeah|yep|no|nope|also|actually|honestly|personally|btw|"
        r"by\ the\ way|fyi|hi|hey|hello|note\ that|please\ note\ that|remember\ that|"
        r"please\ remember\ that|remember|keep\ in\ mind\ that|for\ the\ record|in\ general|"
        r"generally\ speaking|as\ for\ me|to\ be\ honest|tbh|in\ my\ opinion|imo|imho|now|then|"
        r"because|since|as\ a\ rule|oh|hmm|look|besides|moreover|however|for\ me|at\ work|at\ home|"
        r"for\ this\ project|in\ this\ project|these\ days|nowadays|i\ think|as\ you\ know|sure|"
        r"great|thanks|although|though|or|while|cool|right)[,:]?\s{1,20}"
    ),
    closing=(
        r",?\s{1,20}(?:please|thanks|thank\ you|btw|lol|haha|tbh|imo|imho|anyway|anyways|you\ know|"
        r"by\ the\ way|though|too|as\ well)$"
    ),
    not_a_fact=(
        r"\b(?:if|unless|suppose|supposing|imagine|pretend|assuming|let['’ʼ]?s\ say|would|"
        r"wouldn['’ʼ]?t|whether|hypothetically|used\ to|wish|roleplay|role-play|maybe|perhaps|"
        r"might|supposedly|yeah\ right|said|says|told\ me|as\ if|/s)\b"
    ),
    no_object=(
        r"(?:it|that|this|them|those|these|him|her|you|us|me|so|not|both|either|neither|one|any|"
        r"some|none|all|everything|nothing|anything|something|the\ same|(?:this|that|the\ other|"
        r"the\ first|the\ second|the\ last)\ one)"
        r"(?:\s{1,20}(?:too|better|more|most|best|less|a\ lot|very\ much|so\ much|much|now|here|"
        r"there|instead|either|all|again|anymore|as\ well|then|of\ (?:it|them|that|those)|"
        r"for\ now|today|yet)){0,3}"
    ),
    past=(
        r"(?!(?:need|feed|embed|speed|seed|proceed|exceed|succeed|bleed|shed|wed|heed|weed|breed|"
        r"bed)\b)(?:\w{2,30}ed|was|were|had|did|got|went|said|thought|knew|felt|saw|heard|meant|"
        r"understood|made|took|came|been|found|told|kept|wrote|did|gave|bought|saw|learnt|lost)\b"
    ),
    self_talk=(
        r"\b(?:as\ an?\ (?:AI|(?:large\ )?language\ model|assistant)|as\ your\ assistant|"
        r"I['’ʼ]?m\ an?\ (?:AI|language\ model|assistant)|my\ training)\b"
    ),
    self_talk_object={
        Category.DECISION: (
            r"(?:an?|the|this|that|these|those|your|my|our|some|both|another|each)\b"
            r"|.{0,200}?\b(?:tool|tools|command|function\ call|subagent|to\ (?!production\b)\w+)\b"
            r"|(?:grep|bash|sed|awk|ripgrep|curl|cat|ls|find|read|edit|write|glob|git)\b"
        ),
        Category.PREFERENCE: (
            r"(?:your|how\ you|the\ way\ you|that|this|to\ help|helping|hearing|seeing|the\ idea|"
            r"where|what\ you|answering|chatting|talking|to\ see|to\ hear|working\ with\ you)\b"
        ),
        Category.PATTERN: (
            r"(?:happy|here|available|ready|glad|learning|try|strive|aim|recommend|suggest|advise|"
            r"store|remember|share|access|have\ access|improving)\b"
        ),
    },
    speech=r"\s{0,5}(?:I|we|my)\b",
    short_names=frozenset({"c", "r", "go", "d", "v", "q", "j", "k", "c#", "f#", "c++", "vi", "js"}),
)

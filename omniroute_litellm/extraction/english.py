"""English."""

from typing import Final

from omniroute_litellm.extraction.patterns import Language, Pattern, phrase
from omniroute_litellm.types import Category, Polarity

_A: Final = "['’ʼ]"
_I: Final = "(?:I|we)"
_AM: Final = f"(?:I{_A}?m|I am|we{_A}re|we are)"
_HAVE: Final = f"(?:{_A}?ve| have)"
_NOT: Final = f"(?:don{_A}?t|do not)"
_STRESS: Final = (
    "(?:(?:really|personally|strongly|absolutely|also|still|just|much|definitely|truly|genuinely|"
    "honestly|deeply|greatly|vastly|actively|particularly|especially|actually|do|quite|rather|"
    "totally|simply|now|currently|both|all|kind of|sort of|kinda|sorta) ){0,2}"
)
_WILL: Final = f"(?:I{_A}?ll|we{_A}ll|{_I} (?:will|shall)|{_AM} (?:going to|gonna))"
_WILL_NOT: Final = (
    f"(?:{_I} won{_A}?t|(?:I{_A}?ll|we{_A}ll|{_I} (?:will|shall)) (?:not|never)|"
    f"(?:{_AM} (?:not|never)|we aren{_A}?t) (?:going to|gonna))"
)
_ADOPT: Final = (
    "(?:use|be using|adopt|go with|stick (?:with|to)|switch to|choose|select|opt for|settle on|"
    "stay with|pick(?! (?:up|on|at|(?:you|him|her|them|us) up)\\b))"
)
_SOON: Final = "(?:(?:now|also|just|definitely|always|only) ){0,2}"
_DONE: Final = "(?:(?:finally|just|already|recently|also|now) ){0,2}"
_PICKED: Final = "picked(?! (?:up|on|at)\\b)|selected|opted for|settled on|decided on|switched to"
_HOW: Final = (
    "(?:(?:almost|nearly|practically|virtually|basically|literally|pretty much|really|very|quite|"
    "just|also|still|do) ){0,2}"
)
_OFTEN: Final = "(?:usually|always|typically|often|frequently|regularly|generally|normally|mostly)"
_NEVER: Final = "never(?:,? ever)?"
_PAST: Final = (
    "(?:(?!(?:need|feed|embed|speed|seed|proceed|exceed|succeed|bleed|shed|wed|heed|weed|breed)\\b)"
    "\\w{2,30}ed|was|were|had|did|got|went|said|thought|knew|felt|saw|heard|meant|understood|made|"
    "took|came|been|found|told|kept|wrote|gave|bought|learnt|lost|ate|drank|ran|drove|spoke|chose|"
    "began|broke|brought|built|caught|fell|flew|forgot|grew|held|left|met|paid|rode|sang|sat|sent|"
    "slept|sold|spent|stood|swam|taught|threw|woke|won|wore)\\b"
)
_SCOPE: Final = (
    "(?:as an?|for|on|at|in|every|during|with|without|when|whenever|while|since|outside|within)"
    "(?: (?!(?:I|we|my|our|you|he|she|they|it)\\b)[\\w.#+/&'’-]{1,30}){1,5}"
)
_OBJECT: Final = "(?P<object>\\S.*)"
_LIKED: Final = (
    "(?P<object>\\S.*?)"
    "(?: (?:a lot|(?:so|very|that|too) much|at all|(?:the )?most|best|any more|anymore))?$"
)
_HABIT: Final = f"(?!{_PAST}){_OBJECT}"


def _pattern(name: str, category: Category, expression: str, *, denies: bool = False) -> Pattern:
    polarity = Polarity.NEGATIVE if denies else Polarity.POSITIVE
    return Pattern(f"en.{name}", category, polarity, phrase(f"(?:{_SCOPE},? )?{expression}"))


def _prefers(name: str, expression: str, *, denies: bool = False) -> Pattern:
    return _pattern(name, Category.PREFERENCE, expression, denies=denies)


def _decides(name: str, expression: str, *, denies: bool = False) -> Pattern:
    return _pattern(name, Category.DECISION, expression, denies=denies)


def _repeats(name: str, expression: str, *, denies: bool = False) -> Pattern:
    return _pattern(name, Category.PATTERN, expression, denies=denies)


_FAVORITE: Final = "favou?rites?(?: [\\w.+#/-]{1,30}){0,4}?"
_IS: Final = "(?:is|are|remains|ha(?:s|ve) always been)"
_IS_NOT: Final = (
    f"(?:(?:is|are) no longer|isn{_A}?t|aren{_A}?t|(?:is|are) not(?! \\w{{1,30}}ing\\b))"
)
_OUR: Final = "(?:my|our) (?:all-time |absolute |personal |current )?"

_PREFERENCES: Final = (
    _prefers("prefer_not", f"{_I} {_STRESS}prefer not {_LIKED}", denies=True),
    _prefers("prefer", f"{_I} {_STRESS}(?:prefer|favou?r) {_LIKED}"),
    _prefers("like", f"{_I} {_STRESS}(?:like|love|enjoy|adore) {_LIKED}"),
    _prefers("have_liked", f"{_I}{_HAVE} (?:always )?(?:preferred|liked|loved|enjoyed) {_LIKED}"),
    _prefers("fan", f"{_AM} {_STRESS}a (?:big |huge |great )?fan of {_LIKED}"),
    _prefers("not_favorite", f"{_OUR}{_FAVORITE} {_IS_NOT} {_OBJECT}", denies=True),
    _prefers("favorite", f"{_OUR}{_FAVORITE} {_IS} {_OBJECT}"),
    _prefers("least_favorite", f"{_OUR}least {_FAVORITE} {_IS} {_OBJECT}", denies=True),
    _prefers(
        "not_like",
        f"{_I} {_STRESS}(?:{_NOT}|no longer) {_STRESS}(?:like|love|enjoy|prefer|care for) {_LIKED}",
        denies=True,
    ),
    _prefers(
        "never_liked",
        f"{_I}{_HAVE}? never {_STRESS}(?:liked|loved|enjoyed|cared for) {_LIKED}",
        denies=True,
    ),
    _prefers(
        "not_fan",
        f"{_AM} {_STRESS}(?:no|not (?:an?|much of a)) (?:big |huge |great )?fan of {_LIKED}",
        denies=True,
    ),
    _prefers(
        "hate",
        f"{_I} {_STRESS}(?:try to )?(?:hate|dislike|detest|loathe|despise|avoid) {_LIKED}",
        denies=True,
    ),
    _prefers(
        "have_hated",
        f"{_I}{_HAVE} (?:always )?(?:hated|disliked|detested|avoided) {_LIKED}",
        denies=True,
    ),
    _prefers(
        "cannot_stand",
        f"{_I} {_STRESS}(?:can{_A}?t|cannot|can not) {_STRESS}(?:stand|bear) {_LIKED}",
        denies=True,
    ),
)
_DECISIONS: Final = (
    _decides("will_use", f"{_WILL} {_SOON}{_ADOPT} {_OBJECT}"),
    _decides("will_not_use", f"{_WILL_NOT} {_SOON}{_ADOPT} {_OBJECT}", denies=True),
    _decides("going_with", f"{_AM} (?:going with|sticking with|switching to) {_OBJECT}"),
    _decides(
        "decided_against",
        f"{_I}{_HAVE}? {_DONE}(?:decided against|(?:decided|chose|chosen) not to) {_OBJECT}",
        denies=True,
    ),
    _decides(
        "decided",
        f"{_I}{_HAVE}? {_DONE}decided (?:to|on|that(?! (?:it|this|that|they)\\b)) {_OBJECT}",
    ),
    _decides("chose", f"{_I} {_DONE}(?:chose(?: to)?|went with|{_PICKED}) {_OBJECT}"),
    _decides("chosen", f"{_I}{_HAVE} {_DONE}(?:chosen(?: to)?|gone with|{_PICKED}) {_OBJECT}"),
)
_HABITS: Final = (
    _repeats("often_not", f"{_I} {_HOW}{_OFTEN} (?:{_NOT}|not|{_NEVER}) {_OBJECT}", denies=True),
    _repeats("often", f"{_I} {_HOW}{_OFTEN} {_HABIT}"),
    _repeats(
        "am_often_not", f"{_AM} (?:{_HOW}{_OFTEN} not|not {_HOW}{_OFTEN}) {_OBJECT}", denies=True
    ),
    _repeats("am_often", f"{_AM} {_HOW}{_OFTEN} {_OBJECT}"),
    _repeats("often_first_not", f"{_OFTEN},? {_I} (?:{_NOT}|{_NEVER}) {_OBJECT}", denies=True),
    _repeats("often_first", f"{_OFTEN},? (?:{_I}|{_AM}) {_HABIT}"),
    _repeats("not_often", f"{_I} {_NOT} {_HOW}{_OFTEN} {_OBJECT}", denies=True),
    _repeats("never", f"{_I} {_HOW}{_NEVER} {_HABIT}", denies=True),
    _repeats("am_never", f"{_AM} {_HOW}{_NEVER} {_OBJECT}", denies=True),
    _repeats("tend_not", f"{_I} (?:tend (?:not to|to not)|{_NOT} tend to) {_OBJECT}", denies=True),
    _repeats("tend", f"{_I} {_HOW}tend to {_OBJECT}"),
)

_SUBJECT: Final = (
    "(?:I|we|you|he|she|they|it|there|this|that|my|our|your|his|her|their|everyone|everybody|"
    "nobody|people|most people)\\b"
)
_REQUEST: Final = f"(?:please|can you|could you|will you|let{_A}?s)\\b"
_ASKING: Final = (
    "(?:please|can|could|would|should|will|do|does|did|is|are|what|which|who|how|why|where|when|"
    f"let{_A}?s|thanks|thank|so|but|because|although|though|since|whereas|unless|if|yet)\\b"
)
_PRONOUN: Final = "(?:it|that|this|them|those|these)"

ENGLISH: Final = Language(
    name="en",
    patterns=(*_PREFERENCES, *_DECISIONS, *_HABITS),
    abbreviation=phrase(r"\b(?:(?:[a-z]\.){1,3}[a-z]|vs|cf|approx|mr|mrs|ms|dr)$"),
    # A colon is no boundary: what follows it is often not said but shown.
    boundary=phrase(
        f"[,;] (?:(?:and|or|so|but|then|which) )?(?={_SUBJECT}|{_ASKING})"
        f"|,? (?:and|or|so|then|while) (?={_SUBJECT}|{_REQUEST}|{_SCOPE},? {_I}\\b)"
        "|,? (?=(?:but|because|although|though|since|whereas|even though|cause|however)\\b)"
        "|,? (?=so (?!(?:much|many|far|on|forth|called|well)\\b))"
        "| [-–—]{1,3} |[;—]| \\("
    ),
    fronted=phrase(f"\\W{{0,9}}(?:(?:and|but|so|well) )?(?:{_OFTEN}|{_SCOPE})"),
    opening=phrase(
        r"(?:[-*+•–]|\d{1,2}[.)]|\[[\sx]?\]) "
        r"|(?:and|but|so|well|ok|okay|yes|yeah|yep|no|nope|also|actually|honestly|personally|btw|"
        r"by the way|fyi|fwiw|ps|p\.s\.|hi|hey|hello|(?:please )?(?:note|remember) that|remember|"
        r"note|update|important|one more thing|about me|preferences?|keep in mind that|"
        r"for (?:the record|example|instance|me)|in (?:general|fact|short|addition|any case)|"
        r"generally speaking|as for me|as a rule|as you know|after all|on the other hand|"
        r"to be honest|tbh|in my opinion|imo|imho|now|then|because|since(?= (?:I|we)\b)|oh|hmm|"
        r"look|besides|moreover|however|these days|nowadays|i think|just|sure|great|thanks|"
        r"although|though|or|while(?= (?:I|we)\b)|cool|right)[,:]? "
    ),
    closing=phrase(
        "(?:,? (?:please|thanks|thank you|btw|lol|haha|tbh|imo|imho|anyways?|you know|by the way|"
        "though|too|as well|instead|then|ok|okay|alright)){1,3}$"
    ),
    not_a_fact=phrase(
        f"\\b(?:if|unless|suppose|supposing|imagine|pretend|assuming|let{_A}?s say|would|"
        f"wouldn{_A}?t|whether|hypothetically|used to|wish|role-?play|maybe|perhaps|might|"
        "supposedly|allegedly|apparently|according to|yeah right|(?:told|tells) me|thinks|believes|"
        "claims|says|insists|reckons|argues|"
        r"(?<!\bI\s)(?<!ve\s)(?<!that\s)(?<!being\s)(?:said|wrote|claimed|insisted|argued))\b"
        r"|(?<!\S)/s(?!\S)"
    ),
    no_object=phrase(
        f"(?:(?:\\w{{1,30}} )?(?:{_PRONOUN}|him|her|you|us|me|so)|not|both|either|neither|one|any|"
        "some|none|all|everything|nothing|anything|something|the same|later|tomorrow|soon|"
        "(?:this|that) one|the (?:first|second|third|last|other|former|latter)(?: one)?|"
        f"(?:do|did|have|can|will|am|are|could|should|must)|(?:do|did|have|ca|wo|could)n?{_A}?t)"
        "(?: (?:too|better|more|most|best|less|a lot|very much|so much|much|now|here|there|"
        "instead|either|all|again|anymore|as well|then|of (?:it|them|that|those)|for now|today|"
        "yet)){0,3}"
        f"|(?:\\w{{1,30}} )?{_PRONOUN} (?:for|in|on|as|at|over|to|with|from|than|by|until) .*"
        "|(?:\\w{1,30} )?(?:this|that|these|those|your) [\\w-]{1,40}"
        "|(?:what|how|where|the way) (?:you|this|that|it|these)\\b.*"
        "|option \\w{1,3}|(?:whatever|whichever)\\b.*"
        "|(?:get|getting|see|seeing|hit|hitting|receive|run into|end up with) .{0,100}"
        "\\b(?:errors?|exceptions?|timeouts?|warnings?|crash(?:es)?|fail(?:s|ures?)?)\\b.*"
    ),
    first_person=phrase(r"\b(?:I|we|my)\b"),
    dictation=phrase(
        r"(?:\b(?:translate|proofread|rewrite|rephrase|paraphrase|reword|summari[sz]e|transcribe|"
        r"repeat after me)\b[^:\n]{0,100}:(?=\s{0,5}\S)"
        r"|\b(?:draft|e-?mail|letter|essay|poem|story|lyrics|translation|transcript|conversation|"
        r"dialog(?:ue)?|speech|text|sentence|paragraph|grammar)\b[^:.\n]{0,60}:"
        r"(?=[^\S\n]{0,5}\n\s{0,5}\S))"
    ),
    self_talk=phrase(
        r"\b(?:as an? (?:AI|(?:large )?language model|assistant)|as your assistant|"
        f"(?:as|I{_A}?m|I am) (?:an? (?:AI|language model|assistant)|Claude|ChatGPT|Codex|Gemini)|"
        r"humans? (?:do|does|can)|"
        r"my (?:training|guidelines|knowledge|instructions|answers?|responses?|limitations))\b"
    ),
    self_talk_object={
        Category.DECISION: phrase(
            r"(?:an?|the|this|that|these|those|your|my|our|some|both|another|each|one|two|three|"
            r"several|multiple|option|approach|plan|version|method|strategy|variant|solution)\b"
            r"|.{0,200}?\b(?:tool|tools|command|function call|subagent|here|above|below|to \w+)\b"
            r"|(?:grep|bash|sed|awk|ripgrep|rg|curl|cat|ls|find|read|edit|write|glob|git|shell)\b"
            r"|(?:todo|web|multi|notebook|bash|task)(?:read|write|edit|search|fetch|output)\b"
            r"|[a-z]{1,20}_\w"
            r"|(?:add|change|check|create|fix|implement|keep|leave|make|move|put|refactor|remove|"
            r"rename|replace|run|skip|split|start|update|use an?|write)\b"
        ),
        Category.PREFERENCE: phrase(
            r"(?:your|our|how|the way|that|this|where|what|being|(?:not )?to|help|helping|hearing|"
            r"seeing|answering|chatting|talking|working (?:with|on)|solving|exploring|discussing|"
            r"learning|making|giving|providing|sharing|guessing|speculat\w{1,5}|assum\w{1,7}|"
            r"questions?|(?:the|a) (?:idea|direction|approach|sound|structure|plan|suggestion|"
            r"question|look|name|challenge|good)|things the way)\b"
        ),
        Category.PATTERN: phrase(
            r"(?:happy|here|available|ready|glad|learning|try|trying|strive|aim|recommend|suggest|"
            r"advise|store|remember|share|access|have access|improving|check|double-check|verify|"
            r"start|begin|explain|see|look|read|ask|answer|respond|reply|provide|give|offer|follow|"
            r"assume|consider|think|prefer|keep|make|ensure|tell|say|sleep|forget|get|find|"
            r"encounter|appreciate|lie|judge|be)\b"
        ),
    },
    short_names=frozenset(
        {"c", "r", "d", "go", "c#", "f#", "c++", "vi", "js", "ts", "qt", "uv", "jq"}
    ),
)

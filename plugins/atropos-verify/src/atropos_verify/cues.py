"""The words that lead to an answer, in many languages: one table for numbers, mathematics, choices and text.

A cue is a noun ("answer", "Antwort", "答案") and what joins it to what follows: a verb ("is"), or a mark (":").
"""

from __future__ import annotations

import re

from atropos_verify.scan import Led, head

NOUNS = (
    "antwort", "endergebnis", "réponse", "reponse", "respuesta", "resposta", "risposta",
    "antwoord", "ответ", "відповідь",
    "odpowiedź", "odpověď", "cevap", "yanıt", "đáp án", "đáp số", "câu trả lời", "jawaban(?:nya)?",
    "svaret?", "vastaus",
    "απάντηση", "الجواب", "الإجابة", "الاجابة", "پاسخ", "جواب", "उत्तर", "जवाब", "תשובה", "התשובה", "คำตอบ",
    "răspunsul?", "válasz",
)  # fmt: skip
CJK_NOUNS = ("答案", "答え", "正解", "解答", "回答", "答", "정답", "답변", "답")
RESULTS = (
    "result", "solution", "ergebnis", "lösung(?:smenge)?", "résultat", "resultado", "solución", "solução",
    "risultato", "soluzione",
    "oplossing", "решение", "розв'язок", "rozwiązanie", "řešení", "løsning(?:en)?", "lösning(?:en)?", "ratkaisu",
    "soluția", "megoldás", "çözüm", "λύση", "solusi(?:nya)?", "nghiệm", "الحل", "समाधान", "הפתרון",
    "resultaat", "uitkomst", "результат", "итог", "wynik", "sonuç", "kết quả", "hasil(?:nya)?", "الناتج", "परिणाम",
)  # fmt: skip
CJK_RESULTS = ("结果", "結果", "결과", "解集", "解", "해답")
"""What also names a result on the way: such a place counts when nothing else states an answer and no number follows."""

_VERBS = (
    "is equal to", "(?:is|was|are|were|equals|becomes)",
    "(?:will|would|must|should|could|might|may|can only|has to) be",
    "comes (?:out )?to(?: be)?", "turns? out to be", "works out (?:to(?: be)?|as)", "is given by",
    "(?:ist|lautet|beträgt|sind|wäre|heißt|est|vaut|sont|serait|es|son|sería|vale|é|são|seria|è|sono|sarebbe|zijn)",
    "(?:равен|равна|равно|это|будет|jest|wynosi|to|là|adalah|ialah|är|är|er|on|είναι|je|este|هو|هي|היא|הוא)",
)  # fmt: skip
_CJK_VERBS = "应该是|應該是|应当是|应为|應為|应是|就是|是|为|為|等于|等於|選|选|は|が|은|는|이|คือ"
_NOT = (
    "(?:is|was|are|were)(?:n['’]?t| not)", "(?:can|could|would|should)(?:n['’]?t|not| not) be", "ist nicht",
    "n['’]est pas", "no es", "não é", "non è", "не", "is niet", "nie jest",
)  # fmt: skip
_CJK_NOT = "不是|不为|不等于|并非|不應是"
_JUNK = r"(?:[\s*_`\"'’”)\]}]|\\\\)*+"
_NO_WORD = r"(?:is|was|not|no|non|não|nicht|ne|nie|has|have|tiene|hat|ha|tem)\b"
_AFTER = rf"(?:\s+(?:to\s+[^.\n:]{{0,80}}?|(?!{_NO_WORD})[^\W\d]{{2,14}}(?:\s+(?!{_NO_WORD})[^\W\d](?!\w))?))?"

CUE = Led(
    re.compile(
        rf"(?:(?<![^\W_])(?:(?P<noun>answers?|{'|'.join(NOUNS)}"
        rf"|final (?:result|value|number|solution|choice|total|count|amount))"
        rf"|(?P<result>{'|'.join(RESULTS)}))(?!\w){_AFTER}"
        rf"|(?P<cnoun>{'|'.join(CJK_NOUNS)})|(?P<cresult>{'|'.join(CJK_RESULTS)}))"
        rf"(?:\s?\([^()\n]{{0,40}}\)|,[^,.:\n]{{1,30}},)?(?:(?P<head>[ \t*_#]*+\n)|{_JUNK}"
        rf"(?:(?P<neg>(?<!\w)(?:{'|'.join(_NOT)})(?!\w)|{_CJK_NOT})"
        rf"|(?P<verb>(?<!\w)(?:{'|'.join(_VERBS)})(?!\w)|{_CJK_VERBS})(?:{_JUNK}:)?"
        rf"|(?P<about>(?<!\w)(?:ha[sd]|have|contains?|c[ao]mes?|took|takes|uses?|needs?|requires?|consists|tiene"
        rf"|hat|besteht|possède"
        rf"|comporte|tem|ha|имеет)(?!\w)|有)|(?P<mark>[:：=|】]|->|=>|→|—|–|-(?=\s))))",
        re.IGNORECASE,
    ),
    "|".join(("answer", "final ", *map(head, (*NOUNS, *CJK_NOUNS, *RESULTS, *CJK_RESULTS)))),
)
"""neg, verb, about, mark or head says how the noun goes over into what is stated."""

QUALIFIED = re.compile(
    r"(?:\b(?:wrong|incorrect|false|bad|tempting|common|previous|initial|original|earlier|student['’]?s?|trap"
    r"|falsche|mauvaise"
    r"|incorrecta|errónea|errada|(?:check|verify|confirm|validate|test|justify|support|find|compute"
    r"|get)(?: that)? (?:the|our|my|this|your))|错误|錯誤|誤った)\s*$"
    r"|(?:don['’]t (?:think|believe)|doubt|unlikely|not (?:sure|certain|true|clear)|(?:could|might|may"
    r"|would) (?:think|guess|say|believe|assume"
    r"|expect))(?: that| if| whether)?(?: the)?\s*$"
    r"|(?<!\w)(?:if|whether|suppose|assume|assuming|unless|wenn|falls|ob|si|se|если)\s[^.,;:!?\n]{0,30}$",
    re.IGNORECASE,
)
"""The words before a noun that then states nothing: "a wrong answer is", "if the answer is"."""

REVERSED_NOUNS = "answer|antwort|réponse|respuesta|risposta|resposta"
REVERSED = re.compile(
    r"\s(?:(?P<neg>(?:is|was)(?:n['’]t| not)|ist nicht|n['’]est pas|no es)|is|was|as|ist|als|est|es|è|é)\s+"
    r"(?:(?:the|our|my|your|indeed|therefore|thus|die|unsere|la|notre|nuestra|a)\s+)*"
    r"(?:(?:final|correct|right|required|desired|richtige|endgültige|bonne)\s+)*"
    rf"(?:{REVERSED_NOUNS})\b",
    re.IGNORECASE,
)
"""What follows an answer that comes first: "42 is the answer"."""

DEMONSTRATIVE = re.compile(
    r"\b(?:this|that|these|those|such|such an|diese[rs]?|cette|ce|est[ae]|quest[ao]|deze|dit|это|эта|ten|ta|to)\s*$"
    r"|(?:这个|这一|该|此|この|その|이)\s*$",
    re.IGNORECASE,
)

CORRECTION = Led(
    re.compile(
        r"(?<!\w)(?:(?:(?:no|nope|nein|non|nee|нет|não)\s*[,:;!—–-]|no,? wait|wait|hold on|actually"
        r"|correction|oops|sorry|hmm+|scratch that"
        r"|i meant?|let me correct (?:that|this|it|myself)"
        r"|make that|my mistake|on second thought|rather|moment|halt|korrektur|attendez|attends|correction|pardon"
        r"|perdón|corrección|espera|correção|aspetta|correzione|стоп|исправление)(?!\w)?[\s,.:;!…—–*-]*+)+"
        r"(?:(?:(?:it|that|this|the (?:correct |right )?(?:value|number|one|choice|letter|option))(?:['’]s"
        r"|\s+(?:is|was|should be|must be))"
        r"|(?:should|must) be|make (?:it|that)|it|es ist|das ist|c['’]est|es|è|é)\b[\s:,*]*+)?"
        r"|(?:不对|不對|不，|等等|更正|错了|いや|違う|違います|訂正|待って|아니)[\s，,。.:：、!！]*+(?:应该是|應該是|应为|正しくは"
        r"|是)?[\s:：]*+",
        re.IGNORECASE,
    ),
    "no|nein|nee|нет|não|wait|hold on|actually|correction|oops|sorry|hmm|scratch|i mean|"
    "let me correct|make that|my mistake|on second thought|rather|moment|halt|korrektur|attend|"
    "pardon|perdón|corrección|espera|correção|aspetta|correzione|стоп|исправление|不|等等|更正|错了|"
    "いや|違|訂正|待って|아니",
)
"""A word that takes back what was stated, right before what is stated instead: "Wait, no: 17"."""

RETRACTION = Led(
    re.compile(
        r"(?P<near>\b(?:that|this|it|which)(?:['’]s| is| was| isn['’]?t| is not| can['’]?t be)\s*(?:all "
        r"|clearly |obviously |not )?"
        r"(?:wrong|incorrect|mistaken|a mistake|an error|right|correct)\b|das ist falsch|c['’]est faux"
        r"|es incorrecto|está mal"
        r"|è sbagliato|это неверно|不对|不對|错了|錯了|間違い|違います)"
        r"|\bi (?:made|found|see) (?:a|an|my) (?:mistake|error|slip)\b|\b(?:scratch|strike|ignore|disregard) that\b"
        r"|\bstart over\b",
        re.IGNORECASE,
    ),
    "that|this|it|which|das ist falsch|c'est faux|c’est faux|es incorrecto|está mal|è sbagliato|"
    "это неверно|不对|不對|错了|錯了|間違い|違います|i made|i found|i see|scratch|strike|ignore|"
    "disregard|start over",
)
"""What takes an answer back without a new one. near: it is about what was named last."""

RIGHT = re.compile(
    r"\b(?:that|this|it|which)(?:['’]s| is| was)\s*(?:all |clearly |obviously )?(?:right|correct)\b", re.IGNORECASE
)

FILLER = re.compile(
    r"(?:[\s:：*_`~#\"'“”«»$}]|\\\(|\\\[|\\\{|\\(?:text|textbf|textit|mathbf|mathrm|boldsymbol)\s*\{|\\[,;!: ]"
    r"|(?<!\w)(?:therefore|thus|hence|so|then|simply|just|only|clearly|obviously|indeed|actually|really"
    r"|exactly|precisely"
    r"|about|approximately|approx\.?|around|roughly|nearly|almost|probably|likely|most likely|possibly|maybe|perhaps"
    r"|definitely|certainly|surely|of course|in fact|equal to|given by|equals|(?:a"
    r"|the) (?:grand )?total of|now|still|also|always"
    r"|finally|ultimately|in total|overall|(?:going )?to be|as follows|the following|(?:the )?(?:number"
    r"|value|integer|amount)(?: of)?"
    r"|also|somit|daher|folglich|demnach|genau|etwa|ungefähr|ca\.?|rund|circa|gleich|wahrscheinlich|insgesamt"
    r"|donc|alors|environ|exactement|égale? à|ainsi|probablement|de|entonces|por (?:lo )?tanto"
    r"|aproximadamente|exactamente"
    r"|igual a|unos|probablemente|quindi|dunque|esattamente|pari a|portanto|então|cerca de|dus|ongeveer|precies"
    r"|равен|равна|равно|примерно|около|это|i think|i believe|we get|we have|let['’]s say)(?!\w)"
    r"|约|約|大约|大約|大概|就是|应该是|等于|およそ|ちょうど|—|–(?=\s))*+",
    re.IGNORECASE,
)
"""The words between a cue and its answer."""

NEGATION = re.compile(
    r"(?:(?<!\w)(?:(?:is|are|was|can|could|does|do|did|would|should)n['’]t|cannot|not|never|neither"
    r"|no longer|nor|nicht|kein[e]?"
    r"|pas|non|niet|не)(?!\w)(?:\s+(?:just|simply|only|exactly|be|equal))*|不是|并非|≠|!=|\\neq?\b)\s*",
    re.IGNORECASE,
)
POSTFIX = re.compile(
    r"(?P<not>[^。.\n]{1,40}?)\s*(?:(?:では|じゃ)(?:なく(?:て)?|ない|ありません)|[이가]?\s?아(?:니라|니다|닙니다"
    r"|니에요))[、,\s]*(?P<but>[^。\n]*)"
)
"""A denial behind the denied answer, with the new one: "8 de wa naku 7"."""

INSTEAD = re.compile(
    r"(?<!\w)(?:but|rather|instead|sondern|mais|sino|ma|mas|maar|а)(?!\w)(?!\s+(?:not|rather|nicht|pas|no)\b)[\s,:]*"
    r"(?:it(?:['’]s| is| was)|actually|really|in fact|rather|instead|es ist|c['’]est)?[\s,:]*|,\s*(?:it"
    r"|that)(?:['’]s| is)(?!\w)\s*|而是|而是:|，是",
    re.IGNORECASE,
)
TAKEN_BACK = re.compile(
    r"(?<!\w)(?:but|however|although|though|aber|mais|pero)(?!\w)[\s,]*(?:it(?:['’]s| is| was| should be"
    r"| turned out to be)"
    r"|that(?:['’]s| is| was) (?:wrong|incorrect|not right)[\s,;:.]*(?:it(?:['’]s| is)|the answer is)?"
    r"|actually|really|in fact"
    r"|es ist|c['’]est|es)(?!\w)[\s,:]*",
    re.IGNORECASE,
)
"""Within a sentence, what replaces what was just named: "the answer was 40, but it is 42"."""

UNSURE = re.compile(
    r"\b(?:(?:do(?:n['’]t| not)|can(?:['’]t|not)) (?:really |actually )?(?:know|tell|say|determine|decide)"
    r"|no (?:idea|clue)"
    r"|not (?:at all |really )?(?:sure|certain)|unsure|uncertain|(?:impossible|unable|hard) to (?:tell|say"
    r"|know|determine))\b"
    r"|(?<!\w)(?:wei(?:ß|ss) (?:es |ich )?nicht|nicht sicher|keine ahnung|(?:ne )?sais pas|aucune idée"
    r"|no (?:lo )?sé|ni idea"
    r"|não sei|non (?:lo )?so|weet het niet|не знаю|не уверен|nie wiem)(?!\w)"
    r"|不知道|不确定|不確定|わかりません|分からない"
    r"|모르",
    re.IGNORECASE,
)
"""What says that no answer is known."""
GUESSED = re.compile(
    r"\b(?:(?:could|might|may|would) (?:well |just |also )?be|maybe|perhaps|possibly|probably|guess(?:ing)?)\b"
    r"|(?<!\w)(?:könnte|vielleicht|vermutlich|peut-être|pourrait|quizás?|tal vez|podría|talvez|pode ser|forse|potrebbe"
    r"|misschien|может быть|возможно|może)(?!\w)|可能|也许|大概|かもしれ|아마",
    re.IGNORECASE,
)
"""What makes a guess of what is named beside it."""

BOUND = re.compile(
    r"(?<!\w)(?:at least|at most|less than|more than|greater than|fewer than|smaller than|larger than"
    r"|bigger than|over|under"
    r"|up to|above|below|between|within|beyond|no more than|no less than|not less than|exceeds?"
    r"|mindestens|höchstens|weniger als"
    r"|mehr als|zwischen|unter|über|au moins|au plus|moins de|plus de|entre|al menos|como máximo|menos de"
    r"|más de|minstens"
    r"|не менее|не более|больше|меньше)(?!\w)(?:[\s$*€£]|or equal to)*+$|(?:至少|至多|不超过|小于|大于"
    r"|少于|多于|以上|以下|[<>≤≥]|\\(?:leq?|geq?|lt|gt))\s*\$?$",
    re.IGNORECASE,
)
"""Right before a number: a bound of the answer, and not the answer."""

DESCRIPTION = re.compile(
    r"(?:(?:very|quite|thus|therefore|also|indeed|now|clearly|not|already|fully|more|the)\s+)*(?:reasonable"
    r"|correct|right|wrong|"
    r"incorrect|consistent|based|rounded|obtained|derived|found|final|exact|helpful|complete|valid|verified"
    r"|confirmed|expressed|"
    r"calculated|computed|determined|shown|explained|unique|unclear|simplified|supported|justified|plausible"
    r"|accurate|precise|"
    r"close|easy|simple|straightforward|independent|sensible|made|written|stated|marked|boxed|clear"
    r"|obvious|important|only one|"
    r"one (?:that|which|we)|what|how|why|whether|when|here|there|as|in|for|to|from|by|on|at|of|with"
    r"|within|because|since|if|"
    r"done|checked|double-checked|good|fine|ok|okay|me|mine|you|yours|ready|"
    r"richtig|korrekt|plausibel|sinnvoll|gerundet|falsch|correcte|exacte|arrondie|juste|raisonnable|correcta"
    r"|razonable|"
    r"redondeada|corretta|ragionevole|correta|razoável|合理|正确|正確|正しい)(?![\w-])",
    re.IGNORECASE,
)
"""Words about an answer that do not state it."""

EXPLAINS = re.compile(
    r"(?<!\s)[,;]?\s{1,8}(?:because|since|which(?!\s+(?:is|equals|gives|makes"
    r"|comes to)\s+[$\\]?\d)|where|so that|as we|and so|so|I hope|due to|given that|based on|weil|denn|da|parce que"
    r"|car|puisque|porque|ya que|pois|perché|omdat|потому что|так как)\b|[,，]?\s*(?:因为|因為|所以|なぜなら"
    r"|왜냐하면)",
    re.IGNORECASE,
)
SENTENCE_END = re.compile(
    r"(?:(?<!\b(?:Dr|Mr|Ms|St|Jr|Sr|vs|No|Rs|Mt|Ft|ca))(?<!\b(?:Mrs|etc))(?<!\b[A-Z]\.[A-Z])(?!\.\s+[A-Z]\.)\.|[!?])"
    r"(?=[*_\"'”’)]*\s+[A-Z*(\\\"“À-ÞА-Я]|[*_\"'”’)\s]*$)|[。！？]",
)
"""Where a sentence ends: not after abbreviations and initials."""

"""The characters that the glyphs dataset draws, each one a class.

How the list was made, once: of the code points that all twelve fonts of ``glyphs.FONTS`` have, the letters, digits,
currency and mathematical signs and arrows below U+2B00, without the blocks U+1D00 to U+1DFF and U+2300 to U+26FF and
without those that Unicode decomposes (accents, compatibility forms). In the order of code points a character was
taken if, in every font, its box is nowhere more than three times as long as wide, and its shape is unlike that of every
character taken before: ink cut out, centred on a square, scaled to 24 x 24, blurred with radius 1, cosine below 0.92.
So of A, Alpha and Cyrillic A only the first is here. The tests render all pairs again.
"""

CHARACTERS = (
    "$+0123457<=>ABCEHKLPQTUVWXYZabdefkmnqrt¢£¤¬±Æ×ÞæðþŒƁƄƆƇƍƒƔƕƛƜƝƢƤƦƧƩƪƫƴƷƸƺƾǂ"
    "ȜȤȴȵȸȹȻȾȿɀɕɖɘɚɠɢɧɬɮɰɲɳɴɷɸɹɺɻɽʁʆʍʎʐʑʔʕʛʞʤʦʧʩʪʫʬʭʮΔΞΨβζμνςσωϗϞϟϠϡϺЂЉЊЋЏЖФЧЮЯл"
    "щъћҐҘҚңҤҪҬҲӃӋӶԲԴԶԷԸԹԾԿՀՁՃՆՇՊՎՒՔՖխճչջփֆდეკლორფშჭჯჲჴ₯₴₹←→↓↖↗↘↙↜↝↟↢↣↧↪↫↭↯↰↱↲↳↴"
    "↵↶↷↸↹↺↻↼↽↾↿⇁⇄⇅⇆⇐⇑⇒⇓⇖⇗⇘⇙⇚⇛⇡⇤⇥⇫⇰⇱⇲⇳⇵⇶⇸∋∏∓∕∗√∛∝∞∟∠∸∹∺∻≐≒≓≡≤≥⊂⊃⊆⊇⊏⊐⊓⊔⊕⊞⊢⊣⊥⋄⟠⧫⩫"
)

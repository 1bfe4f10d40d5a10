#include "cli/synth_tokenizer.h"

#include "base/json.h"

#include <string.h>

/* From the tokenizer of Qwen3.6-35B-A3B by the Qwen team, Apache License 2.0: "left right" a line, in the byte-level
 * alphabet. */
static const char *const merges[] = {
    "Ġ Ġ", "ĠĠ ĠĠ", "i n", "Ġ t", "ĠĠĠĠ ĠĠĠĠ", "e r", "ĠĠ Ġ", "o n", "Ġ a", "r e", "a t", "s t", "e n", "o r",
    "Ġt h", "Ċ Ċ", "Ġ c", "l e", "Ġ s", "i t", "a n", "a r", "a l", "Ġth e", "Ġ p", "Ġ f", "o u", "Ġ =", "i s",
    "ĠĠĠĠ ĠĠĠ", "in g", "e s", "Ġ w", "i on", "e d", "i c", "Ġ b", "Ġ d", "e t", "Ġ m", "Ġ o", "ĉ ĉ", "r o", "a s",
    "e l", "c t", "n d", "Ġ in", "Ġ h", "en t", "i d", "Ġ n", "a m", "ĠĠĠĠĠĠĠĠ ĠĠĠ", "Ġt o", "Ġ re", "- -", "Ġ {",
    "Ġo f", "o m", "i m", "č Ċ", "Ġ (", "i l", "/ /", "Ġa nd", "u r", "s e", "Ġ l", "e x", "Ġ S", "a d", "Ġ \"",
    "c h", "u t", "i f", "* *", "Ġ }", "e m", "o l", "ĠĠĠĠĠĠĠĠ ĠĠĠĠĠĠĠĠ", "t h", "Ġ g", "i g", "i v", "c e", "o d",
    "Ġ v", "at e", "Ġ T", "a g", "a y", "Ġ *", "o t", "u s", "Ġ C", "Ġ st", "Ġ I", "u n", "u l", "u e", "Ġ A",
    "o w", "Ġ '", "e w", "Ġ <", "at ion", "( )", "Ġf or", "a b", "or t", "u m", "am e", "Ġ is", "p e", "t r", "c k",
    "â Ģ", "Ġ y", "i st", "-- --", "h e", "Ġ e", "l o", "Ġ M", "Ġb e", "er s", "Ġ on", "Ġc on", "a p", "u b", "Ġ P",
    "ĠĠĠĠĠĠĠĠ ĠĠĠĠĠĠĠ", "as s", "in t", "l y", "ur n", "Ġ $", "a v", "p ort", "i r", "- >", "n t", "ct ion", "en d",
    "Ġd e", "it h", "ou t", "t urn", "ou r", "ĠĠĠĠ Ġ", "l ic", "re s", "p t", "= =", "Ġth is", "Ġw h", "Ġ if",
    "Ġ D", "v er", "ag e", "Ġ B", "h t", "ex t", "= \"", "Ġth at", "** **", "Ġ R", "Ġ it", "es s", "Ġ F", "Ġ r",
    "o s", "an d", "Ġa s", "e ct", "k e", "ro m", "Ġ //", "c on", "Ġ L", "( \"", "q u", "l ass", "Ġw ith", "i z",
    "d e", "Ġ N", "Ġa l", "o p", "u p", "g et", "i le", "Ġa n", "at a", "o re", "r i", "Ġp ro", "ĉĉ ĉĉ", "t er",
    "a in", "Ġ W", "Ġ E", "Ġc om", "Ġre turn", "ar t", "Ġ H", "a ck", "im port", "ub lic", "Ġ or", "e st", "m ent",
    "Ġ G", "ab le", "Ġ -", "in e", "il l", "in d", "er e", ": :", "it y", "Ġ +", "Ġt r", "el f", "ig ht", "( '",
    "or m", "ul t", "st r", ". .", "\" ,", "Ġy ou", "y pe", "p l", "Ġn ew", "Ġ j", "ĠĠĠĠĠĠĠĠ ĠĠĠĠĠĠĠĠĠĠĠ", "Ġf rom",
    "Ġ ex", "Ġ O", "l d", "Ġ [", "o c", "Ġs e", "Ġ le", "---- ----", ". s", "' ,", "an t", "Ġa t", "as e", ". c",
    "Ġc h", "< /", "av e", "an g", "Ġa re", "Ġin t", "âĢ Ļ", "_ t", "er t", "i al", "a ct", "iv e", "od e", "o st",
    "Ġc lass", "Ġn ot", "o g", "or d", "al ue", "al l", "f f", "on t", "im e", "a re", "Ġ U", "Ġp r", "Ġ :", "i es",
    "iz e", "u re", "Ġb y", "i re", ". p", "Ġs h", "ic e", "a st", "pt ion", "tr ing", "o k", "_ _", "c l", "# #",
    "Ġh e", "ar d", ") .", "Ġ @", "i ew", "ĉĉ ĉ", "Ġw as", "i p", "th is", "Ġ u", "ĠT he", "id e", "a ce", "i b",
    "a c", "r ou", "Ġw e", "j ect", "Ġp ublic", "a k", "v e", "at h", "o id", "Ġ= >", "u st", "q ue", "Ġre s",
    ") )", "' s", "Ġ k", "an s", "y st", "un ction", "**** ****", "Ġ i", "Ġ us", "p p", "on e", "a il", "== ==",
    "n ame", "Ġst r", "Ġ /", "Ġ &", "a ch", "d iv", "yst em", "el l", "Ġh ave", "er r", "ou ld", "ul l", "p on",
    "Ġ J", "_ p", "Ġ= =", "ig n", "S t", "Ġp l", "f orm", "p ut", "ou nt", "d d", "it e", "Ġg et", "r r", "om e",
    "Ġ âĢ", "ar am", "c c", "Ġ* /", "E R", "I n", "le s", "_ s", "on g", "i e", "Ġc an", "Ġ V", "er v", "p r",
    "Ġ un", "ro w", "b er", "Ġd o", "l l", "Ġ el", "Ġs elf", "at ed", "ar y", "Ġ .", "' ]", "u d", "Ġ en", "ĠT h",
    "ĠĠĠĠĠĠĠĠĠĠĠĠĠĠĠĠ ĠĠĠĠĠĠĠ", "t e", "_ c", "u ct", "Ġa b", "or k", ". get", "Ġ #", "a w", "res s", "o b",
    "N ame", "ap p", "[ '", "Ġal l", "or y", "it ion", "an ce", "e ar", "Ġcon t", "v ent", "i a", "Ġw ill", "I N",
    "ĠĠĠĠĠĠĠĠ Ġ", "re turn", "Ġ< /", "d ata", "R e", "p le", "il d", "th er", "Ġy our", "( $", "Ġ out", ") ,",
    "Ġh as", "S tring", "s o", "Ġ up", "a x", "Ġde f", "Ġb o", "g e", "al se", "O N", "p er", "ic h", "Ġb ut",
    "Ġ Ċ", "Ġ _", "_ m", "ad d", "que st", "od el", "s elf", "er y", "f t", "en s", "// //", "a ke", ". C", "Ġg o",
    "Ġf unction", "Ġ K", "iv ate", "Ġ im", "Ġcon st", ". t", "Ġv oid", "Ġs et", "ĠS ystem", "c ri", "l i", "ĉ if",
    ". m", "al ly", "s et", "e p", "âĢĻ s", "b o", "de f", "Ġm e", "Ġ !", "at ch", "\" >", "e c", "ĠI n", "p h",
    "Ġ |", "_ f", "Ġv ar", "en ce", "I d", "re e", "in k", "le ct", "u g", "et h", "Ġel se", "-------- --------",
    "con t", "Ġs o", "at ic", "Ġl o", "p ro", "t on", "s s", "ow n", "ab el", "o int", "ou s", "el d", "S T",
    "T he", "ĠĠĠĠĠĠĠĠĠĠĠĠĠĠĠĠ ĠĠĠĠĠĠĠĠĠĠĠĠĠĠĠĠ", "R E", "\" :", "ol or", "t p", "e g", "ke y", "u de", "ĠS t",
    "ou nd", "Ġa r", "en er", "s er", "b ject", "ess age", "f er", "Ġm ore", "ation s", "ent s", "Ġh is", "Ġthe y",
    ". S", "Ġ Y", "u se", "n e", "is h", "ol d", "_ d", "i o", "i eld", "Ġp er", "C ont", "ing s", "## ##",
    "Ġd ata", "Ġs a", "e f", "f o", "Ġon e", "en g", "Ġd is", "A T", "Ġn ame", "Ġtr ue", "v al", "le d", ". f",
    "Ġn e", "Ġ end", ". T", "c re", "ar k", "lo g", "E x", "err or", "_ id", "ur re", "ang e", "Ġn ull", "rr ay",
    "Ġm y", "p an", "ic t", "at or", "V iew", "L ist", "ĉ return", "âĢ Ŀ", "Ġp re", "Ġ x", "cl ude", "ar g", "o v",
    ". h", "Ġ >", "Ġthe ir", "' )", "ir st", "ic k", "g h", "L E", "O R", "Ġpr ivate", "t em", "čĊ čĊ", "us er",
    "Ġ )", "c om", ". A", "Ġ id", "re ad", "Ġwh o", "_ b", "Ġt ime", "Ġm an", "r y", "==== ====", "rou p", "ro p",
    "p ublic", "v el", "um ber", "b le", "Ġwh ich", "******** ********", "Ġan y", "Ġf alse", "w e", "Ġv alue",
    "Ġl i", "\" )", "nd er", "g r", "Ġn o", "p aram", "f ig", ".c om", "Ġa pp", "_ l", "ion s", ". D", "ĠC h",
    "Ġab out", "Ġa dd", "Ġs u", "Ġstr ing", "I D", "Ġo ver", "str ing", ". l", "our ce", "_ C", "Ġ qu", "ĠS tring",
    "c a", "S E", "Ġ ro", "s h", "u al", "T ype", "s on", "n ew", "er n", "Ġa g", "A R", "] .", "Ġ \?", "ic al",
    "Ġd es", "ut h", "i x", "ay s", "Ġt ype", "' t", "a ult", "Ġin ter", "v ar", ". b", "Ġp art", ". d", "urre nt",
    "I T", "E N", "en c", "( f", "r a", "v alue", "ch o", "ut ton", "o se", "Ġ! =", "at er", "Ã ©", "re ate",
    "ol l", "p os", "y le", "n g", "A L", "us ing", "am es", "at es", "el y", "Ġw ork", "Ġ em", "in al", "Ġs p",
    "Ġwh en", ".s et", "ĠĠĠĠ ĠĠ", "t o", "qu ire", "ind ow", "le ment", "pe ct", "as h", "[ i", "Ġu se", ". F",
    "pe c", "Ġa d", "o ve", "ce ption", "eng th", "in clude", "ad er", "ĠĠĠĠĠĠĠĠĠĠĠĠĠĠĠĠ ĠĠĠĠĠĠĠĠĠĠĠ", "at us",
    "T h", "it le", "r it", "v oid", "() .", "Ġof f", "Ġo ther", "Ġ& &", "m s", "Ġbe en", "Ġt e", "m l", "c o",
    "n c", "erv ice", "Ġ %", "an n", "ad e", "ĊĊ ĊĊ", "lo ck", "con st", "pon se",
};
enum { N_MERGES = sizeof merges / sizeof *merges };

static const struct { const char *text; bool special; } added[] = {
    { "<|endoftext|>", true },
    { "<|im_start|>", true },
    { "<|im_end|>", true },
    { "<|object_ref_start|>", true },
    { "<|object_ref_end|>", true },
    { "<|box_start|>", true },
    { "<|box_end|>", true },
    { "<|quad_start|>", true },
    { "<|quad_end|>", true },
    { "<|vision_start|>", true },
    { "<|vision_end|>", true },
    { "<|vision_pad|>", true },
    { "<|image_pad|>", true },
    { "<|video_pad|>", true },
    { "<tool_call>", false },
    { "</tool_call>", false },
    { "<|fim_prefix|>", false },
    { "<|fim_middle|>", false },
    { "<|fim_suffix|>", false },
    { "<|fim_pad|>", false },
    { "<|repo_name|>", false },
    { "<|file_sep|>", false },
    { "<tool_response>", false },
    { "</tool_response>", false },
    { "<think>", false },
    { "</think>", false },
    { "<|audio_start|>", true },
    { "<|audio_end|>", true },
    { "<tts_pad>", true },
    { "<tts_text_bos>", true },
    { "<tts_text_eod>", true },
    { "<tts_text_bos_single>", true },
    { "<|audio_pad|>", true },
};
enum { N_ADDED = sizeof added / sizeof *added, N_BYTES = 256 };

static const char split_pattern[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|"
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

/* Code points of the byte-level alphabet in the order of ids: printable bytes stand for themselves, the other 68 are
 * U+0100 and up and come last. */
static int alphabet(int *code_points) {
    int n = 0;
    for (int b = 33; b < 256; b++)
        if (b < 127 || (b > 160 && b != 173)) code_points[n++] = b;
    for (int i = 0; i < 68; i++) code_points[n++] = 256 + i;
    return n;
}

static void utf8(struct calla_buf *out, int c) {
    if (c < 0x80) calla_buf_char(out, (char)c);
    else {
        calla_buf_char(out, (char)(0xc0 | c >> 6));
        calla_buf_char(out, (char)(0x80 | (c & 0x3f)));
    }
}

static void write_added(struct calla_buf *out, int first_id) {
    for (int i = 0; i < N_ADDED; i++) {
        calla_buf_fmt(out, "%s{\"id\": %d, \"content\": ", i ? ",\n  " : "", first_id + i);
        calla_json_print_string(out, added[i].text, strlen(added[i].text));
        calla_buf_fmt(out, ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": %s}",
                      added[i].special ? "true" : "false");
    }
}

static void write_vocab_of_merges(struct calla_buf *out, int first_id) {
    for (int i = 0; i < N_MERGES; i++) {
        char token[64];
        size_t n = 0;
        for (const char *c = merges[i]; *c != 0 && n < sizeof token; c++)
            if (*c != ' ') token[n++] = *c;
        calla_buf_str(out, ", ");
        calla_json_print_string(out, token, n);
        calla_buf_fmt(out, ": %d", first_id + i);
    }
}

static void write_merges(struct calla_buf *out) {
    for (int i = 0; i < N_MERGES; i++) {
        if (i) calla_buf_str(out, ", ");
        calla_json_print_string(out, merges[i], strlen(merges[i]));
    }
}

void cli_tiny_tokenizer(struct calla_buf *out) {
    static const char byte_level[] = "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": false, \"use_regex\": false}";
    int code_points[N_BYTES];
    const int n_bytes = alphabet(code_points);

    calla_buf_str(out, "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null,\n \"added_tokens\": [\n  ");
    write_added(out, CLI_TINY_END_OF_TEXT);
    calla_buf_str(out, "],\n \"normalizer\": {\"type\": \"NFC\"},\n \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": "
                       "[{\"type\": \"Split\", \"pattern\": {\"Regex\": ");
    calla_json_print_string(out, split_pattern, strlen(split_pattern));
    calla_buf_fmt(out, "}, \"behavior\": \"Isolated\", \"invert\": false}, %s]},\n \"post_processor\": %s,\n \"decoder\": %s,\n ",
                  byte_level, byte_level, byte_level);
    calla_buf_str(out, "\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, \"continuing_subword_prefix\": \"\", "
                       "\"end_of_word_suffix\": \"\", \"fuse_unk\": false, \"byte_fallback\": false, \"ignore_merges\": false,\n  \"vocab\": {");
    for (int i = 0; i < n_bytes; i++) {
        struct calla_buf c = { 0 };
        utf8(&c, code_points[i]);
        if (i) calla_buf_str(out, ", ");
        calla_json_print_string(out, c.data, c.n);
        calla_buf_fmt(out, ": %d", i);
        calla_buf_free(&c);
    }
    write_vocab_of_merges(out, n_bytes);
    calla_buf_str(out, "},\n  \"merges\": [");
    write_merges(out);
    calla_buf_str(out, "]}}\n");
}

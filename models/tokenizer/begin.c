/* SPDX-License-Identifier: Apache-2.0
 * Recognizes files that are not text by their first bytes. */
#include "models/data/lines.h"
#include "models/tokenizer/utf8.h"

#include "api/base/needs.h"

#include <string.h>

#define LENGTH(text) (sizeof(text) - 1)
#define UNPACK ": unpack it"
#define CONVERT ": convert it to .jsonl"
#define EXTRACT ": extract its text"

/* Signatures at the beginning of a file, or at byte `at`. */
static const struct {
    const char *mark;
    size_t size;
    const char *what;
    size_t at;
    bool brief; /* so short that a file of tokens may begin with it by chance */
} others[] = {
#define MARK(text, ...)                                           \
    {                                                             \
        .mark = (text), .size = LENGTH(text), .what = __VA_ARGS__ \
    }
    MARK("%PDF-1", "a PDF" EXTRACT),
    MARK("%PDF-2", "a PDF" EXTRACT),
    MARK("{\\rtf", "an RTF document" EXTRACT),
    MARK("%!PS-Adobe", "a PostScript file" EXTRACT),
    MARK("\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1", "an old Office document" EXTRACT),
    MARK("BOOKMOBI", "a MOBI book" EXTRACT, 60),
    MARK("AT&TFORM", "a DjVu document" EXTRACT),
    MARK("PK\3\4", "a zip archive, a .docx, .xlsx or .epub, or PyTorch's pickle" UNPACK),
    MARK("7z\xBC\xAF\x27\x1C", "compressed by 7z" UNPACK),
    MARK("Rar!\x1A\x07", "compressed by RAR" UNPACK),
    MARK("\x28\xB5\x2F\xFD", "compressed by zstd" UNPACK),
    MARK("\xFD\x37zXZ", "compressed by xz" UNPACK),
    MARK("\x04\x22\x4D\x18", "compressed by lz4" UNPACK),
    MARK("1AY&SY", "compressed by bzip2" UNPACK, 4),
    MARK("\x1F\x8B\x08", "compressed by gzip" UNPACK, 0, true),
    MARK("\x1F\x9D", "compressed by compress" UNPACK, 0, true),
    MARK("ustar\0", "a tar archive" UNPACK, 257),
    MARK("ustar  \0", "a tar archive" UNPACK, 257),
    MARK("PAR1", "a Parquet file" CONVERT),
    MARK("ARROW1", "an Arrow file" CONVERT),
    MARK("Obj\x01", "an Avro file" CONVERT),
    MARK("\x89HDF\r\n\x1A\n", "an HDF5 file" CONVERT),
    MARK("SQLite format 3", "an SQLite database" CONVERT),
    MARK("\x93NUMPY", "a NumPy array" CONVERT),
    MARK("\x80\x02", "a Python pickle" CONVERT, 0, true),
    MARK("\x80\x03", "a Python pickle" CONVERT, 0, true),
    MARK("\x80\x04\x95", "a Python pickle" CONVERT, 0, true),
    MARK("\x80\x05\x95", "a Python pickle" CONVERT, 0, true),
    MARK("GGUF\x01\0", "a GGUF model"),
    MARK("GGUF\x02\0", "a GGUF model"),
    MARK("GGUF\x03\0", "a GGUF model"),
    MARK("\0\0\0\0\0\0{\"", "a safetensors file", 2),
    MARK("\x89PNG\r\n\x1A\n", "a PNG image"),
    MARK("\xFF\xD8\xFF", "a JPEG image", 0, true),
    MARK("GIF87a", "a GIF image"),
    MARK("GIF89a", "a GIF image"),
    MARK("II*\0", "a TIFF image"),
    MARK("MM\0*", "a TIFF image"),
    MARK("\0\0\0\0\x36\0\0\0", "a BMP image", 6),
    MARK("\0\0\0\0\x8A\0\0\0", "a BMP image", 6),
    MARK("WEBPVP8", "a WebP image", 8),
    MARK("WAVEfmt", "a WAV sound", 8),
    MARK("AVI LIST", "an AVI film", 8),
    MARK("ftyp", "an MP4 or HEIF file", 4),
    MARK("\x1A\x45\xDF\xA3", "a Matroska or WebM film"),
    MARK("OggS\0", "an Ogg sound"),
    MARK("fLaC\0", "a FLAC sound"),
    MARK("ID3\x03", "an MP3 sound"),
    MARK("ID3\x04", "an MP3 sound"),
    MARK("\x7F"
         "ELF",
         "an ELF program"),
    MARK("MZ\x90\0", "a Windows program"),
    MARK("\xCF\xFA\xED\xFE", "a macOS program"),
    MARK("\xCA\xFE\xBA\xBE", "a Java class or macOS program"),
    MARK("\0asm", "a WebAssembly program"),
    MARK("version https://git-lfs", "a pointer of Git LFS: fetch the file itself with `git lfs pull`"),
#undef MARK
};

static const char *find_other(const char *text, size_t size, bool tokens)
{
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        const size_t at = others[i].at, end = at + others[i].size;
        if (end <= size && !(tokens && others[i].brief) && memcmp(text + at, others[i].mark, others[i].size) == 0)
            return others[i].what;
    }
    return NULL;
}

/* Counts bytes that a UTF-8 text does not have: control characters and invalid bytes. */
static size_t count_odd(const char *text, size_t size)
{
    size_t odd = 0;
    for (size_t at = 0; at < size; at++) {
        const size_t good = tx_utf8_prefix(text + at, size - at);
        for (size_t i = at; i < at + good; i++)
            odd += (unsigned char)text[i] < ' ' && (!text[i] || !strchr("\t\n\r\f\x1B", text[i]));
        at += good;
        odd += at < size;
    }
    return odd;
}

/* Counts of the two-byte units that have one zero byte. */
typedef struct units {
    size_t half[2];                /* by the position of the zero: it is last in LE */
    size_t ascii, blank[2], empty; /* other byte in ASCII; other byte a blank or line end; both bytes zero */
} units;

static units count_units(const char *text, size_t size)
{
    units u = {{0}, 0, {0}, 0};
    for (size_t i = 0; i + 1 < size; i += 2) {
        const size_t place = text[i + 1] == '\0';
        const char other = text[i + !place];
        u.empty += !text[i] && !text[i + 1];
        if ((text[i] && text[i + 1]) || !other)
            continue;
        const bool blank = strchr(" \t\r\n", other) != NULL;
        u.half[place]++;
        u.blank[place] += blank;
        u.ascii += blank || (other >= ' ' && other < 0x7F);
    }
    return u;
}

/* Recognizes UTF-16 and UTF-32 by their byte order marks. Without one it recognizes them by the zero bytes of ASCII
 * characters, and by bytes that are invalid in UTF-8. */
static const char *find_wide(const char *text, size_t size)
{
    static const char *const narrow[] = {"UTF-16BE", "UTF-16LE"};
    if (size >= 4 && (memcmp(text, "\xFF\xFE\0\0", 4) == 0 || memcmp(text, "\0\0\xFE\xFF", 4) == 0))
        return "UTF-32";
    if (size >= 2 && (memcmp(text, "\xFF\xFE", 2) == 0 || memcmp(text, "\xFE\xFF", 2) == 0))
        return "UTF-16";
    if (count_odd(text, size) * 8 < size)
        return NULL;
    const units u = count_units(text, size);
    const size_t fours = size / 4, zeros = u.half[0] + u.half[1];
    if (u.empty >= fours && zeros * 16 < fours * 17)
        return text[0] || text[1] ? "UTF-32LE" : "UTF-32BE";
    const size_t *const by =
        u.blank[0] + u.blank[1] ? u.blank : u.half; /* characters such as U+4E00 have a zero, too */
    const size_t most = by[by[1] > by[0]], least = by[by[1] <= by[0]];
    if (u.empty || zeros < 2 || u.ascii * 4 < zeros * 3 || least * 8 > most)
        return NULL;
    return narrow[by[1] > by[0]];
}

/* Whether a text seems to have an encoding of one byte a character. Then it has bytes that are invalid in UTF-8, and
 * neither longer characters of UTF-8 nor control characters. The end of a text that is cut may be half a character. */
static bool is_narrow(const char *text, size_t size)
{
    size_t invalid = 0;
    for (size_t at = 0; at < size;) {
        const unsigned char byte = (unsigned char)text[at];
        const size_t length = tx_utf8_read(text + at, size - at, NULL);
        if (length > 1 || (byte < ' ' && (!byte || !strchr("\t\n\r\f\x1B", text[at]))))
            return false;
        invalid += !length && (size < TX_TEXT_BEGIN || size - at >= TX_UTF8_MAX);
        at += length ? length : 1;
    }
    return invalid;
}

tx_status tx_text_check(const char *text, size_t size)
{
    const size_t good = tx_utf8_prefix(text, size);
    if (good == size)
        return TX_OK;
    return tx_fail(TX_FORMAT, "byte %zu is not UTF-8: convert the text, or name its encoding by --encoding", good + 1);
}

bool tx_line_is_blank(const char *line, size_t size)
{
    TX_NEEDS(line || !size, false);
    while (size && (*line == ' ' || *line == '\t' || *line == '\r' || *line == '\n')) {
        line++;
        size--;
    }
    return size == 0;
}

tx_status tx_text_begin(const char *text, size_t size, bool tokens, size_t *begin)
{
    TX_NEEDS((text || !size) && begin, TX_INVALID);
    static const char mark[] = "\xEF\xBB\xBF";
    const size_t looked = size < TX_TEXT_BEGIN ? size : TX_TEXT_BEGIN;
    const char *other = find_other(text, looked, tokens), *wide = tokens ? NULL : find_wide(text, looked);
    if (other)
        return tx_fail(TX_FORMAT, "not text, but %s", other);
    if (wide)
        return tx_fail(TX_FORMAT,
                       "text in %s, and TX reads UTF-8: convert it with `iconv -f %s -t UTF-8`; txtrain does so with "
                       "--encoding %s",
                       wide, wide, wide);
    if (!tokens && is_narrow(text, looked))
        return tx_fail(TX_FORMAT, "text in an encoding of one byte a character, such as Latin-1 or Windows-1252, and "
                                  "TX reads UTF-8: convert it with `iconv -f LATIN1 -t UTF-8`; txtrain does so with "
                                  "--encoding latin-1");
    *begin = size >= 3 && memcmp(text, mark, 3) == 0 ? 3 : 0;
    return TX_OK;
}

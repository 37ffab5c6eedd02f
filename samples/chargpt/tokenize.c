// tokenize TEXT FOLDER: turns a UTF-8 text into the token files that `sennit train --data` reads.
//
// The distinct characters, sorted by code point, are tokens 0, 1, 2, …; the first 90 % of the text becomes
// FOLDER/train.bin, the rest FOLDER/val.bin, as little-endian uint16. FOLDER/characters.txt holds the characters in the
// order of their tokens.
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CODE_POINTS = 0x110000, TOKENS_MAX = UINT16_MAX };

// Indexed by code point: whether the text has it, then its token.
static bool seen[CODE_POINTS];
static uint16_t token_of[CODE_POINTS];

static void fail(const char *what, const char *path) {
    fprintf(stderr, "tokenize: %s: %s\n", path, what);
    exit(1);
}

// The length of the UTF-8 sequence that `lead` opens, 0 when it opens none.
static size_t sequence_length(unsigned char lead) {
    if (lead < 0x80) return 1;
    if (lead >= 0xC2 && lead < 0xE0) return 2;
    if (lead >= 0xE0 && lead < 0xF0) return 3;
    return lead >= 0xF0 && lead < 0xF5 ? 4 : 0;
}

// Decodes the text into `characters` (room for one per byte) and returns their number.
static size_t decode(const unsigned char *text, size_t size, uint32_t *characters, const char *path) {
    size_t count = 0;
    for (size_t i = 0; i < size;) {
        size_t length = sequence_length(text[i]);
        if (length == 0 || length > size - i) fail("not UTF-8", path);
        uint32_t c = length == 1 ? text[i] : text[i] & (0x7Fu >> length);
        for (size_t k = 1; k < length; ++k) {
            if ((text[i + k] & 0xC0) != 0x80) fail("not UTF-8", path);
            c = c << 6 | (text[i + k] & 0x3F);
        }
        if (c >= CODE_POINTS) fail("not UTF-8", path);
        characters[count++] = c;
        i += length;
    }
    return count;
}

static unsigned char *read_text(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) fail("cannot open", path);
    long end = ftell(file);
    rewind(file);
    unsigned char *text = malloc(end > 0 ? (size_t)end : 1);
    if (end <= 0 || !text || fread(text, 1, (size_t)end, file) != (size_t)end) fail("cannot read, or empty", path);
    fclose(file);
    *size = (size_t)end;
    return text;
}

static FILE *create(char *path, size_t room, const char *folder, const char *name) {
    if (snprintf(path, room, "%s/%s", folder, name) >= (int)room) fail("path too long", folder);
    FILE *file = fopen(path, "wb");
    if (!file) fail("cannot create", path);
    return file;
}

static void write_tokens(const char *folder, const char *name, const uint32_t *characters, size_t count) {
    char path[4096];
    FILE *file = create(path, sizeof path, folder, name);
    for (size_t i = 0; i < count; ++i) {
        uint16_t token = token_of[characters[i]];
        unsigned char bytes[2] = {token & 0xFF, token >> 8};
        fwrite(bytes, 1, 2, file);
    }
    if (ferror(file) | fclose(file)) fail("cannot write", path);
}

static void write_character(FILE *file, uint32_t c) {
    if (c < 0x80) {
        fputc((int)c, file);
        return;
    }
    int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = {[1] = 0xC0, [2] = 0xE0, [3] = 0xF0};
    fputc((int)(lead[more] | c >> 6 * more), file);
    while (more-- > 0) fputc((int)(0x80 | (c >> 6 * more & 0x3F)), file);
}

// Numbers the characters that were seen and lists them in FOLDER/characters.txt.
static uint32_t assign_tokens(const char *folder, const char *text_path) {
    char path[4096];
    FILE *file = create(path, sizeof path, folder, "characters.txt");
    uint32_t tokens = 0;
    for (uint32_t c = 0; c < CODE_POINTS; ++c) {
        if (!seen[c]) continue;
        if (tokens == TOKENS_MAX) fail("more than 65,535 distinct characters", text_path);
        token_of[c] = (uint16_t)tokens++;
        write_character(file, c);
    }
    if (ferror(file) | fclose(file)) fail("cannot write", path);
    return tokens;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fputs("usage: tokenize TEXT FOLDER\n", stderr);
        return 2;
    }
    size_t size;
    unsigned char *text = read_text(argv[1], &size);
    uint32_t *characters = malloc(size * sizeof *characters);
    if (!characters) fail("out of memory", argv[1]);
    size_t count = decode(text, size, characters, argv[1]);
    for (size_t i = 0; i < count; ++i) seen[characters[i]] = true;

    uint32_t tokens = assign_tokens(argv[2], argv[1]);
    size_t train = count * 9 / 10;
    write_tokens(argv[2], "train.bin", characters, train);
    write_tokens(argv[2], "val.bin", characters + train, count - train);
    printf("%zu characters, %u distinct: %zu to train, %zu to validate\n", count, tokens, train, count - train);
    free(characters);
    free(text);
    return 0;
}

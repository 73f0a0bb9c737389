/* SPDX-License-Identifier: Apache-2.0
 * The expression of the pre-tokenizer UnicodeScripts, which splits a text into runs of one script. */
#include "models/tokenizer/buffer.h"
#include "models/tokenizer/regex.h"

#include <stdio.h>
#include <stdlib.h>

/* Hugging Face's scripts, common ones first. It treats Hiragana and Katakana as Han. */
static const char *const scripts[] = {
    "Latin",
    "Common",
    "Cyrillic",
    "Arabic",
    "Greek",
    "Hebrew",
    "Hangul",
    "Devanagari",
    "Thai",
    "Inherited",
    "Adlam",
    "Ahom",
    "Anatolian_Hieroglyphs",
    "Armenian",
    "Avestan",
    "Balinese",
    "Bamum",
    "Bassa_Vah",
    "Batak",
    "Bengali",
    "Bhaiksuki",
    "Bopomofo",
    "Brahmi",
    "Braille",
    "Buginese",
    "Buhid",
    "Canadian_Aboriginal",
    "Carian",
    "Caucasian_Albanian",
    "Chakma",
    "Cham",
    "Cherokee",
    "Coptic",
    "Cuneiform",
    "Cypriot",
    "Deseret",
    "Duployan",
    "Egyptian_Hieroglyphs",
    "Elbasan",
    "Ethiopic",
    "Georgian",
    "Glagolitic",
    "Gothic",
    "Grantha",
    "Gujarati",
    "Gurmukhi",
    "Hanunoo",
    "Hatran",
    "Imperial_Aramaic",
    "Inscriptional_Pahlavi",
    "Inscriptional_Parthian",
    "Javanese",
    "Kaithi",
    "Kannada",
    "Kayah_Li",
    "Kharoshthi",
    "Khmer",
    "Khojki",
    "Khudawadi",
    "Lao",
    "Lepcha",
    "Limbu",
    "Linear_A",
    "Linear_B",
    "Lisu",
    "Lycian",
    "Lydian",
    "Mahajani",
    "Malayalam",
    "Mandaic",
    "Manichaean",
    "Marchen",
    "Meetei_Mayek",
    "Mende_Kikakui",
    "Meroitic_Cursive",
    "Meroitic_Hieroglyphs",
    "Miao",
    "Modi",
    "Mongolian",
    "Mro",
    "Multani",
    "Myanmar",
    "Nabataean",
    "New_Tai_Lue",
    "Newa",
    "Nko",
    "Ogham",
    "Ol_Chiki",
    "Old_Hungarian",
    "Old_Italic",
    "Old_North_Arabian",
    "Old_Permic",
    "Old_Persian",
    "Old_South_Arabian",
    "Old_Turkic",
    "Oriya",
    "Osage",
    "Osmanya",
    "Pahawh_Hmong",
    "Palmyrene",
    "Pau_Cin_Hau",
    "Phags_Pa",
    "Phoenician",
    "Psalter_Pahlavi",
    "Rejang",
    "Runic",
    "Samaritan",
    "Saurashtra",
    "Sharada",
    "Shavian",
    "Siddham",
    "SignWriting",
    "Sinhala",
    "Sora_Sompeng",
    "Sundanese",
    "Syloti_Nagri",
    "Syriac",
    "Tagalog",
    "Tagbanwa",
    "Tai_Le",
    "Tai_Tham",
    "Tai_Viet",
    "Takri",
    "Tamil",
    "Tangut",
    "Telugu",
    "Thaana",
    "Tibetan",
    "Tifinagh",
    "Tirhuta",
    "Ugaritic",
    "Vai",
    "Warang_Citi",
    "Yi",
};

/* Characters that have no script in Hugging Face's table, because they came into Unicode after version 9. */
static const uint32_t later[][2] = {
    {0x560, 0x560},     {0x588, 0x588},     {0x5EF, 0x5EF},     {0x61D, 0x61D},     {0x7FD, 0x7FF},
    {0x860, 0x89F},     {0x8B5, 0x8B5},     {0x8BE, 0x8D3},     {0x9FC, 0x9FE},     {0xA76, 0xA76},
    {0xAFA, 0xAFF},     {0xB55, 0xB55},     {0xC04, 0xC04},     {0xC3C, 0xC3C},     {0xC5D, 0xC5D},
    {0xC77, 0xC77},     {0xC84, 0xC84},     {0xCDD, 0xCDD},     {0xD00, 0xD00},     {0xD04, 0xD04},
    {0xD3B, 0xD3C},     {0xD81, 0xD81},     {0xE86, 0xE86},     {0xE89, 0xE89},     {0xE8C, 0xE8C},
    {0xE8E, 0xE93},     {0xE98, 0xE98},     {0xEA0, 0xEA0},     {0xEA8, 0xEA9},     {0xEAC, 0xEAC},
    {0xEBA, 0xEBA},     {0x170D, 0x170D},   {0x1715, 0x171F},   {0x180F, 0x180F},   {0x1878, 0x1878},
    {0x1ABF, 0x1ACE},   {0x1B4C, 0x1B4C},   {0x1B7D, 0x1B7E},   {0x1C90, 0x1CBF},   {0x1CF7, 0x1CF7},
    {0x1CFA, 0x1CFA},   {0x1DF6, 0x1DFA},   {0x20BF, 0x20C0},   {0x23FF, 0x23FF},   {0x2B97, 0x2B97},
    {0x2BBA, 0x2BBC},   {0x2BC9, 0x2BC9},   {0x2BD2, 0x2BEB},   {0x2BF0, 0x2BFF},   {0x2C2F, 0x2C2F},
    {0x2C5F, 0x2C5F},   {0x2E45, 0x2E5D},   {0x312E, 0x312F},   {0x31BB, 0x31BF},   {0x32FF, 0x32FF},
    {0x4DB6, 0x4DBF},   {0x9FD6, 0x9FFF},   {0xA7AF, 0xA7AF},   {0xA7B8, 0xA7F6},   {0xA82C, 0xA82C},
    {0xA8FE, 0xA8FF},   {0xAB66, 0xAB6B},   {0xFBC2, 0xFBC2},   {0xFD40, 0xFD4F},   {0xFDCF, 0xFDCF},
    {0xFDFE, 0xFDFF},   {0x1019C, 0x1019C}, {0x1032D, 0x1032F}, {0x10570, 0x105BC}, {0x10780, 0x107BA},
    {0x10A34, 0x10A35}, {0x10A48, 0x10A48}, {0x10D00, 0x10D39}, {0x10E80, 0x10FF6}, {0x11070, 0x11075},
    {0x110C2, 0x110CD}, {0x11144, 0x11147}, {0x111CE, 0x111CF}, {0x1133B, 0x1133B}, {0x1145A, 0x1145A},
    {0x1145E, 0x11461}, {0x116B8, 0x116B9}, {0x1171A, 0x1171A}, {0x11740, 0x1183B}, {0x11900, 0x11ABF},
    {0x11D00, 0x11FFF}, {0x12F90, 0x12FF2}, {0x13430, 0x13438}, {0x16A70, 0x16AC9}, {0x16E40, 0x16E9A},
    {0x16F45, 0x16F4F}, {0x16F7F, 0x16F87}, {0x16FE1, 0x16FF1}, {0x187ED, 0x187F7}, {0x18AF3, 0x1AFFE},
    {0x1B002, 0x1B2FB}, {0x1CF00, 0x1CFC3}, {0x1D1E9, 0x1D1EA}, {0x1D2E0, 0x1D2F3}, {0x1D372, 0x1D378},
    {0x1DF00, 0x1DF1E}, {0x1E100, 0x1E7FE}, {0x1E94B, 0x1E94B}, {0x1EC71, 0x1ED3D}, {0x1F10D, 0x1F10F},
    {0x1F12F, 0x1F12F}, {0x1F16C, 0x1F16F}, {0x1F1AD, 0x1F1AD}, {0x1F260, 0x1F265}, {0x1F6D3, 0x1F6DF},
    {0x1F6F7, 0x1F6FC}, {0x1F7D5, 0x1F7F0}, {0x1F8B0, 0x1F90F}, {0x1F91F, 0x1F91F}, {0x1F928, 0x1F92F},
    {0x1F931, 0x1F932}, {0x1F93F, 0x1F93F}, {0x1F94C, 0x1F94F}, {0x1F95F, 0x1F97F}, {0x1F992, 0x1F9BF},
    {0x1F9C1, 0x1FBF9}, {0x2A6D7, 0x2A6DF}, {0x2B735, 0x2B738}, {0x2CEB0, 0x2EBE0}, {0x30000, 0x3134A},
};

#define HAN "[\\p{sc:Han}\\p{sc:Hiragana}\\p{sc:Katakana}\\x{30FC}]"

#define ADD(pattern, ...)                                                               \
    do {                                                                                \
        char part[128];                                                                 \
        tx_buffer_add(pattern, part, (size_t)snprintf(part, sizeof part, __VA_ARGS__)); \
    } while (0)

/* A run begins with a character of its script. It includes the characters of group 1 that follow: spaces, and
 * characters without a script. */
tx_status tx_regex_scripts(tx_regex *regex)
{
    tx_buffer pattern = {0};
    ADD(&pattern, "(?(DEFINE)([ \\p{sc:Unknown}");
    for (size_t i = 0; i < sizeof later / sizeof later[0]; i++)
        ADD(&pattern, "\\x{%X}-\\x{%X}", (unsigned)later[i][0], (unsigned)later[i][1]);
    ADD(&pattern, "]))(?!(?1))(?:" HAN "(?:" HAN "++|(?1))*+");
    for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++)
        ADD(&pattern, "|[^\\P{sc:%s}\\x{30FC}](?:[^\\P{sc:%s}\\x{30FC}]++|(?1))*+", scripts[i], scripts[i]);
    ADD(&pattern, ")");
    tx_buffer_add(&pattern, "", 1);
    const tx_status status = pattern.status ? pattern.status : tx_regex_compile(pattern.data, regex);
    free(pattern.data);
    return status;
}

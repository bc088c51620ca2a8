// Sets and names of Oniguruma's patterns as PCRE2 writes them. Each was compared with the package tokenizers (0.23.3,
// Unicode 16) for all characters that Unicode 14 knows; U+1171E alone is in \p{Mn} here and not there.
#pragma once

#include <string_view>
#include <utility>

namespace bitgrad::data::oniguruma {

using Named = std::pair<std::string_view, std::string_view>;

// Contents of sets. White_Space is written out: \s of PCRE2 matches U+180E, too. Alphabetic, Lowercase and Cased are
// those of Unicode 16, in characters that Unicode 14 knows.
inline constexpr std::string_view kSpaces =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
inline constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
// \w, \b and \p{word} that stand in no set take a character below U+0100 from a table of their own.
inline constexpr std::string_view kWordAlone = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
#define BITGRAD_ALPHABETIC R"(\p{Alphabetic}\x{363}-\x{36f}\x{c04}\x{f82}\x{f83}\x{1dd3}-\x{1de6}\x{11080}\x{11081})"
inline constexpr std::string_view kAlphabetic = BITGRAD_ALPHABETIC;
inline constexpr std::string_view kAlnum = BITGRAD_ALPHABETIC R"(\p{Nd})";
#undef BITGRAD_ALPHABETIC
inline constexpr std::string_view kLowercase = R"(\p{Lowercase}\x{10fc}\x{a7f2}-\x{a7f4}\x{ab69})";
inline constexpr std::string_view kCased = R"(\p{Cased}\x{10fc}\x{a7f2}-\x{a7f4}\x{ab69})";
inline constexpr std::string_view kIdContinue = R"(\p{ID_Continue}\x{200c}\x{200d}\x{30fb}\x{ff65})";
inline constexpr std::string_view kXidContinue = R"(\p{XID_Continue}\x{200c}\x{200d}\x{30fb}\x{ff65})";
inline constexpr std::string_view kSpacing = R"(\p{Mc}\x{1171e})";
inline constexpr std::string_view kAssigned = R"(\p{L}\p{M}\p{N}\p{P}\p{S}\p{Z}\p{Cc}\p{Cf}\p{Co})";
inline constexpr std::string_view kGraph = R"(\p{L}\p{M}\p{N}\p{P}\p{S}\p{Cf}\p{Co})";
inline constexpr std::string_view kPrint = R"(\p{L}\p{M}\p{N}\p{P}\p{S}\p{Cf}\p{Co}\p{Zs})";
inline constexpr std::string_view kHex = "0-9A-Fa-f";
inline constexpr Named kPosix[] = {{"space", kSpaces},
                                   {"word", kWord},
                                   {"xdigit", kHex},
                                   {"digit", R"(\p{Nd})"},
                                   {"alpha", kAlphabetic},
                                   {"alnum", kAlnum},
                                   {"upper", R"(\p{Uppercase})"},
                                   {"lower", kLowercase},
                                   {"cntrl", R"(\p{Cc})"},
                                   {"blank", R"(\p{Zs}\x{9})"},
                                   {"ascii", R"(\x{0}-\x{7f})"},
                                   {"graph", kGraph},
                                   {"print", kPrint},
                                   {"punct", R"(\p{P}\p{S})"}};
// Escapes that stand for a set, in lower case; upper case is the opposite.
inline constexpr Named kSetEscapes[] = {{"s", kSpaces}, {"w", kWord}, {"h", kHex}, {"d", R"(\p{Nd})"}};
// Properties that stand for a set.
inline constexpr Named kSetProperties[] = {{"word", kWord},
                                           {"xdigit", kHex},
                                           {"alpha", kAlphabetic},
                                           {"alphabetic", kAlphabetic},
                                           {"alnum", kAlnum},
                                           {"lower", kLowercase},
                                           {"lowercase", kLowercase},
                                           {"cased", kCased},
                                           {"idcontinue", kIdContinue},
                                           {"idc", kIdContinue},
                                           {"blank", R"(\p{Zs}\x{9})"},
                                           {"graph", kGraph},
                                           {"print", kPrint},
                                           {"space", kSpaces},
                                           {"whitespace", kSpaces},
                                           {"wspace", kSpaces},
                                           {"xidcontinue", kXidContinue},
                                           {"xidc", kXidContinue},
                                           {"changeswhencasemapped", R"(\p{CWCM}\x{19b}\x{264})"},
                                           {"cwcm", R"(\p{CWCM}\x{19b}\x{264})"},
                                           {"changeswhentitlecased", R"(\p{CWT}\x{19b}\x{264})"},
                                           {"cwt", R"(\p{CWT}\x{19b}\x{264})"},
                                           {"changeswhenuppercased", R"(\p{CWU}\x{19b}\x{264})"},
                                           {"cwu", R"(\p{CWU}\x{19b}\x{264})"},
                                           {"spacingmark", kSpacing},
                                           {"mc", kSpacing},
                                           {"assigned", kAssigned}};
inline constexpr std::string_view kSameEscapes = "tnrfaeAzZkRXKN0123456789";  // mean the same in both
inline constexpr std::string_view kSameInSets = "tnrfae01234567";
inline constexpr Named kProperties[] = {{"letter", "L"},
                                        {"uppercaseletter", "Lu"},
                                        {"lowercaseletter", "Ll"},
                                        {"titlecaseletter", "Lt"},
                                        {"modifierletter", "Lm"},
                                        {"otherletter", "Lo"},
                                        {"mark", "M"},
                                        {"nonspacingmark", "Mn"},
                                        {"enclosingmark", "Me"},
                                        {"number", "N"},
                                        {"decimalnumber", "Nd"},
                                        {"letternumber", "Nl"},
                                        {"othernumber", "No"},
                                        {"punctuation", "P"},
                                        {"connectorpunctuation", "Pc"},
                                        {"dashpunctuation", "Pd"},
                                        {"openpunctuation", "Ps"},
                                        {"closepunctuation", "Pe"},
                                        {"initialpunctuation", "Pi"},
                                        {"finalpunctuation", "Pf"},
                                        {"otherpunctuation", "Po"},
                                        {"symbol", "S"},
                                        {"mathsymbol", "Sm"},
                                        {"currencysymbol", "Sc"},
                                        {"modifiersymbol", "Sk"},
                                        {"othersymbol", "So"},
                                        {"separator", "Z"},
                                        {"spaceseparator", "Zs"},
                                        {"lineseparator", "Zl"},
                                        {"paragraphseparator", "Zp"},
                                        {"other", "C"},
                                        {"control", "Cc"},
                                        {"format", "Cf"},
                                        {"unassigned", "Cn"},
                                        {"privateuse", "Co"},
                                        {"upper", "Uppercase"},
                                        {"digit", "Nd"},
                                        {"cntrl", "Cc"},
                                        {"punct", "P"},
                                        {"casedletter", "LC"},
                                        {"combiningmark", "M"},
                                        {"surrogate", "Cs"},
                                        {"any", "Any"}};
// Names of one set of characters in both, besides one or two letters. All others are scripts: Oniguruma's are those of
// Script, PCRE2 takes a bare name as Script_Extensions.
inline constexpr std::string_view kSameProperties =
    " uppercase ascii asciihexdigit ahex hexdigit hex caseignorable ci bidicontrol bidic "
    "changeswhencasefolded cwcf changeswhenlowercased cwl dash defaultignorablecodepoint di deprecated dep "
    "emoji emojicomponent ecomp emojimodifier emod emojimodifierbase ebase emojipresentation epres "
    "extendedpictographic extpict graphemelink grlink ideographic ideo idsbinaryoperator idsb "
    "idstrinaryoperator idst idstart ids joincontrol joinc logicalorderexception loe math "
    "noncharactercodepoint nchar patternsyntax patsyn patternwhitespace patws prependedconcatenationmark pcm "
    "quotationmark qmark radical regionalindicator ri softdotted sd unifiedideograph uideo variationselector "
    "vs xidstart xids c cc cf cn co cs l lc ll lm lo lt lu m me mn n nd nl no p pc pd pe pf pi po ps s sc sk "
    "sm so z zl zp zs ";

}  // namespace bitgrad::data::oniguruma

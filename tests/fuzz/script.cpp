// Migrations: a script is split into the statements of which it was composed, and only rowlock's
// tables are renamed, outside literals, quotes and comments.

#include "schema/script.hpp"

#include "fuzz/sql_text.hpp"
#include "fuzz/target.hpp"
#include "sql/table_names.hpp"
#include <rowlock/error.hpp>

#include <algorithm>

namespace {

using fuzz::piece;
using fuzz::require;
using rowlock::schema::split_statements;
using rowlock::sql::dialect;
using rowlock::sql::qualify;

// A comment is a blank; blanks and line ends are one blank.
void append_words(std::string& words, std::string_view text) {
    for (const char c : text) {
        if (c != ' ' && c != '\t' && c != '\n' && c != '\r') {
            words += c;
        } else if (!words.empty() && words.back() != ' ') {
            words += ' ';
        }
    }
}

std::string words_of(std::string_view text) {
    std::string words;
    append_words(words, text);
    if (words.ends_with(' ')) words.pop_back();
    return words;
}

void known_script(fuzz::input& from, dialect which) {
    std::string script;
    std::vector<std::string> expected;
    std::string words;
    for (const piece& each : fuzz::any_pieces(from, which)) {
        script += each.text + " ";
        append_words(words, each.is == piece::kind::comment ? " " : each.text + " ");
        if (from.below(5) != 0) continue;
        script += from.below(2) == 0 ? ";\n" : "; -- it's the end\n";
        expected.push_back(words_of(words));
        words.clear();
    }
    expected.push_back(words_of(words));
    std::erase(expected, "");
    const auto made = split_statements(script, which);
    require(made.size() == expected.size(), "so many statements", script);
    for (std::size_t i = 0; i < made.size(); ++i) {
        require(words_of(made[i]) == expected[i], "each as it was", script);
    }
}

void any_script(const std::string& script, dialect which) {
    const auto made = split_statements(script, which);
    std::string again;
    // On MySQL two minus signs are a comment at the end of a text, but not before a semicolon.
    if (std::ranges::any_of(made, [](auto& each) { return each.ends_with("--"); })) return;
    for (const std::string& each : made) {
        require(!words_of(each).empty(), "no statement is empty", script);
        again += (again.empty() ? "" : ";\n") + each;
    }
    require(split_statements(again, which) == made, "splitting twice changes nothing", script);
}

void rename(const std::string& text, dialect which) {
    require(qualify(text, which, {}) == text, "the same prefix changes nothing", text);
    const std::string there = qualify(text, which, {.prefix = "mine_"});
    require(there.size() <= text.size(), "tables alone are renamed", text);
    if (text.find("rowlock_") == std::string::npos) {
        require(there == text, "what names no table of ours stays", text);
    } else if (text.find("mine_") == std::string::npos && there != text) {
        // The remaining names of rowlock's tables are in literals, quotes or comments.
        require(qualify(there, which, {.prefix = "mine_"}) == there,
                "renaming twice changes nothing", text);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    return fuzz::known_or_any(data, size, known_script,
                              [](const std::string& script, dialect which) {
                                  any_script(script, which);
                                  rename(script, which);
                              });
}

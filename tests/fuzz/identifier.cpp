// The name of a caller's table or column becomes one quoted identifier for exactly that name, or is
// refused: none of its characters affects the surrounding SQL. SQLite gives a second opinion.

#include "sql/identifier.hpp"

#include "fuzz/reference.hpp"
#include "fuzz/target.hpp"
#include <rowlock/error.hpp>

#include <sqlite3.h>

#include <array>

namespace {

using rowlock::sql::dialect;

/// The name in a quoted identifier that is the whole text.
std::string unquoted(std::string_view text) {
    const char quote = text.front();
    std::string name;
    std::size_t at = 1;
    for (; at < text.size(); ++at) {
        if (text[at] == quote) {
            if (at + 1 >= text.size() || text[at + 1] != quote) break;
            ++at;
        }
        name += text[at];
    }
    fuzz::require(at + 1 == text.size(), "the quotes end with the identifier", text);
    return name;
}

void ask_sqlite(const std::string& name, const std::string& quoted) {
    static sqlite3* const db = [] {
        sqlite3* opened = nullptr;
        sqlite3_open(":memory:", &opened);
        return opened;
    }();
    sqlite3_stmt* made = nullptr;
    const std::string text = "select 1 as " + quoted + ", 2";
    const int code = sqlite3_prepare_v2(db, text.c_str(), -1, &made, nullptr);
    fuzz::require(code == SQLITE_OK && sqlite3_column_count(made) == 2, "SQLite reads it", text);
    fuzz::require(sqlite3_column_name(made, 0) == name, "SQLite reads the same name", text);
    sqlite3_finalize(made);
}

void quote(dialect which, const std::string& name) {
    try {
        const std::string quoted = rowlock::sql::quoted(which, name);
        fuzz::require(unquoted(quoted) == name, "quoting keeps the name", name);
        fuzz::require(fuzz::is_utf8(name) && !fuzz::has_control(name), "a clean name", name);
        if (which == dialect::sqlite) ask_sqlite(name, quoted);
    } catch (const rowlock::error& refused) {
        fuzz::require(refused.kind() == rowlock::errc::invalid_options, "invalid_options", name);
        const bool clean =
            !name.empty() && name.size() <= 63 && fuzz::is_utf8(name) && !fuzz::has_control(name);
        fuzz::require(!clean, "a clean name is taken", name);
    }
    try {
        const std::string table = rowlock::sql::quoted_table(which, name);
        const std::size_t dot = name.find('.');
        if (dot == std::string::npos) {
            fuzz::require(unquoted(table) == name, "a table keeps its name", name);
        } else {
            const std::string expected = rowlock::sql::quoted(which, name.substr(0, dot)) + "." +
                                         rowlock::sql::quoted(which, name.substr(dot + 1));
            fuzz::require(table == expected, "schema and table are quoted apart", name);
        }
    } catch (const rowlock::error& refused) {
        fuzz::require(refused.kind() == rowlock::errc::invalid_options, "invalid_options", name);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string name = fuzz::input{data, size}.all();
    for (const dialect which : {dialect::postgresql, dialect::mysql, dialect::sqlite}) {
        quote(which, name);
    }
    return 0;
}

// The effect of a statement on a transaction is derived from its code, and not from its literals
// and comments. Text of known pieces: other contents change nothing, and a second statement is
// always detected. Any text: if SQLite runs it in a transaction and the transaction has ended, or a
// setting of the connection has changed, it was not classified as plain.

#include "transaction/rows/statement_effect.hpp"

#include "fuzz/sql_text.hpp"
#include "fuzz/target.hpp"

#include <sqlite3.h>

namespace {

using fuzz::piece;
using fuzz::require;
using rowlock::detail::effect_of;
using rowlock::detail::statement_effect;
using rowlock::sql::dialect;

constexpr std::string_view beginnings[] = {
    "select",   "insert into t", "update t set", "delete from t", "with x as (", "commit",
    "rollback", "rollback to",   "begin",        "set local",     "set",         "create table",
    "call",     "prepare x",     "(select",      "explain",       "values",      "release a"};

std::string text_of(const std::vector<piece>& pieces) {
    std::string text;
    for (const piece& each : pieces) text += each.text + " ";
    return text;
}

/// The same pieces with other contents of literals and comments.
std::vector<piece> emptied(std::vector<piece> pieces) {
    for (piece& each : pieces) {
        if (each.is == piece::kind::comment) each.text = "/* x */";
        if (each.is == piece::kind::literal) each.text = "'x'";
    }
    return pieces;
}

void known_text(fuzz::input& from, dialect which) {
    const std::string beginning{beginnings[from.below(std::size(beginnings))]};
    const std::size_t cut = from.below(64);
    const auto pieces = fuzz::any_pieces(from, which);
    const std::string text = beginning + " " + text_of(pieces);
    const auto effect = effect_of(which, text);
    require(effect == effect_of(which, beginning + " " + text_of(emptied(pieces))),
            "the contents of literals and comments do not matter", text);
    require(effect != statement_effect::several, "one statement is one", text);

    auto two = pieces;
    two.insert(two.begin() + static_cast<std::ptrdiff_t>(std::min(cut, two.size())),
               {piece::kind::semicolon, ";"});
    two.push_back({piece::kind::code, "commit"});
    const std::string both = beginning + " " + text_of(two);
    require(effect_of(which, both) == statement_effect::several, "a second statement is seen",
            both);
}

class in_memory {
public:
    in_memory() {
        sqlite3_open(":memory:", &db_);
        sqlite3_limit(db_, SQLITE_LIMIT_VDBE_OP, 5'000);
        sqlite3_limit(db_, SQLITE_LIMIT_ATTACHED, 0);
        sqlite3_limit(db_, SQLITE_LIMIT_LENGTH, 100'000);
        sqlite3_progress_handler(
            db_, 10'000, [](void*) { return 1; }, nullptr);
        run("create table t (a, b); insert into t values (1, 2)");
    }
    in_memory(const in_memory&) = delete;
    in_memory& operator=(const in_memory&) = delete;
    ~in_memory() { sqlite3_close(db_); }

    bool run(const std::string& text) {
        return sqlite3_exec(db_, text.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK;
    }
    [[nodiscard]] bool in_transaction() const { return sqlite3_get_autocommit(db_) == 0; }
    [[nodiscard]] int count_temporary() {
        sqlite3_stmt* ask = nullptr;
        sqlite3_prepare_v2(db_, "select count(*) from temp.sqlite_master", -1, &ask, nullptr);
        const int count = sqlite3_step(ask) == SQLITE_ROW ? sqlite3_column_int(ask, 0) : 0;
        sqlite3_finalize(ask);
        return count;
    }

private:
    sqlite3* db_ = nullptr;
};

// Whether the statement would write files.
bool goes_outside(std::string text) {
    for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    return text.find("attach") != std::string::npos || text.find("vacuum") != std::string::npos ||
           text.find("pragma") != std::string::npos;
}

void any_text(const std::string& text, dialect which) {
    const auto effect = effect_of(which, text);
    if (which != dialect::sqlite || text.find('\0') != std::string::npos) return;
    if (effect != statement_effect::plain || goes_outside(text)) return;
    in_memory db;
    require(db.run("begin; savepoint a; savepoint b"), "SQLite begins");
    const bool ran = db.run(text);
    require(!ran || db.in_transaction(), "a plain statement does not end a transaction", text);
    require(!ran || db.count_temporary() == 0, "a plain statement leaves no traces", text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    return fuzz::known_or_any(data, size, known_text, any_text);
}

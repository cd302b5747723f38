#include "base/embedded.hpp"
#include "base/require.hpp"
#include "schema/catalog.hpp"
#include "sql/catalog_question.hpp"
#include "sql/database_traits.hpp"
#include "sql/identifier.hpp"
#include "sql/statement_cache.hpp"
#include "sql/statements.hpp"
#include <rowlock/error.hpp>
#include <rowlock/fenced_table.hpp>

#include <algorithm>
#include <map>
#include <mutex>
#include <ostream>
#include <span>
#include <utility>

namespace rowlock {
namespace {

using sql::binary_operator;
using sql::quoted;
using sql::quoted_table;

using assignments_view = std::span<const assignment>;

/// Text with numbered parameters.
class builder {
public:
    builder& operator<<(std::string_view text) {
        text_ += text;
        return *this;
    }
    builder& parameter() {
        text_ += "$" + std::to_string(++count_);
        return *this;
    }
    builder& parameter(std::size_t number) {
        text_ += "$" + std::to_string(number);
        return *this;
    }
    [[nodiscard]] std::string take() { return std::move(text_); }

private:
    std::string text_;
    std::size_t count_ = 0;
};

/// Fills a template's placeholders in one pass, since a name may look like a placeholder.
std::string filled(std::string_view text,
                   const std::map<std::string, std::string, std::less<>>& places) {
    std::string made;
    while (!text.empty()) {
        const auto open = std::min(text.find('{'), text.size());
        const auto close = text.find('}', open);
        made += text.substr(0, open);
        if (close == std::string_view::npos) return made += text.substr(open);
        const auto found = places.find(text.substr(open + 1, close - open - 1));
        made += found != places.end() ? std::string_view{found->second}
                                      : text.substr(open, close - open + 1);
        text.remove_prefix(close + 1);
    }
    return made;
}

/// One statement of a template, without comments and the final semicolon.
std::string statement_in(std::string_view text) {
    auto statement = sql::without_comments(text);
    if (statement.ends_with(';')) statement.pop_back();
    return statement;
}

/// The template's placeholders and their values for this table.
std::map<std::string, std::string, std::less<>> entries_of(sql::dialect dialect,
                                                           const std::string& table,
                                                           const std::string& column) {
    const auto name =
        quoted(dialect, "rowlock_fence_" + schema::hexadecimal(schema::fingerprint(table)));
    const auto dot = table.find('.');
    const bool in_schema = dot != std::string::npos;
    const auto beside_table = in_schema ? quoted(dialect, table.substr(0, dot)) + "." + name : name;
    // PostgreSQL names a trigger without its schema. SQLite names the trigger with its schema, the
    // table without.
    const bool postgresql = dialect == sql::dialect::postgresql;
    const bool sqlite = dialect == sql::dialect::sqlite;
    // Delimits the function's body, so no name in the body may contain it.
    std::string mark = "$rowlock$";
    while (column.find(mark) != std::string::npos) mark.insert(mark.size() - 1, "_");
    return {{"table", quoted_table(dialect, table)},
            {"mark", mark},
            {"trigger_table", sqlite && in_schema ? quoted(dialect, table.substr(dot + 1))
                                                  : quoted_table(dialect, table)},
            {"column", quoted(dialect, column)},
            {"function", beside_table},
            {"trigger", postgresql ? name : beside_table}};
}

}  // namespace

std::string_view to_string(fenced_write what) noexcept {
    switch (what) {
        case fenced_write::done:
            return "done";
        case fenced_write::refused:
            return "refused";
        case fenced_write::missing:
            return "missing";
    }
    return "?";
}

std::ostream& operator<<(std::ostream& out, fenced_write what) {
    return out << to_string(what);
}

struct fenced_table::shared {
    std::string table;
    std::vector<std::string> key;
    std::string token;
    // Far more than the sets of columns that a program writes.
    mutable sql::statement_cache statements{256};

    mutable std::mutex mutex;
    mutable std::vector<std::string> known_equality;  ///< PostgreSQL's

    /// PostgreSQL: the schemas of the operators that compare the key's columns, so that no other
    /// operator in the caller's search path is chosen. Costs one round trip at the first write.
    std::vector<std::string> equality(sql::connection& db, sql::deadline until) const {
        std::vector<std::string> found(key.size(), "pg_catalog");
        if (!sql::operators_have_schemas(db.speaks())) return found;
        const std::lock_guard lock{mutex};
        if (!known_equality.empty()) return known_equality;
        static const sql::catalog_question types{"column_types"};
        const auto rows = types.ask(db, table, until);
        for (std::size_t row = 0; row < rows.rows(); ++row) {
            const auto at = std::ranges::find(key, rows.text(row, 0));
            if (at != key.end()) {
                found[static_cast<std::size_t>(at - key.begin())] = rows.text(row, 4);
            }
        }
        if (!rows.empty()) known_equality = found;  // otherwise the write reports the problem
        return found;
    }

    void append_key(builder& text, sql::dialect in, const std::vector<std::string>& schemas) const {
        for (std::size_t i = 0; i < key.size(); ++i) {
            text << (i == 0 ? " where " : " and ") << quoted(in, key[i])
                 << binary_operator(in, "=", schemas[i]);
            text.parameter();
        }
    }

    /// $1 is the token; the assignments follow, then the key. A row whose token changes meanwhile
    /// is judged by its new token: the condition is on the row itself, which every database
    /// re-checks after a wait.
    sql::statement update_statement(sql::dialect in, assignments_view assignments,
                                    const std::vector<std::string>& schemas) const {
        builder text;
        const auto column = quoted(in, token);
        text << "update " << quoted_table(in, table) << " set " << column << " = ";
        text.parameter();
        for (const auto& each : assignments) {
            const auto set = quoted(in, each.column);
            text << ", " << set << " = ";
            if (each.adds) text << set << binary_operator(in, "+");
            text.parameter();
        }
        append_key(text, in, schemas);
        text << " and (" << column << binary_operator(in, "<=");
        text.parameter(1) << " or " << column << " is null)";
        return statements.of(text.take());
    }

    /// Does nothing if another client inserts the row meanwhile; the caller then updates it.
    sql::statement insert_statement(sql::dialect in, assignments_view assignments) const {
        builder text;
        text << "insert into " << quoted_table(in, table) << " (" << quoted(in, token);
        for (const auto& each : assignments) text << ", " << quoted(in, each.column);
        for (const auto& column : key) text << ", " << quoted(in, column);
        text << ") values (";
        text.parameter();
        for (std::size_t i = 0; i < assignments.size() + key.size(); ++i) {
            text << ", ";
            text.parameter();
        }
        text << ")";
        // On PostgreSQL a refusal would abort the caller's transaction.
        if (in != sql::dialect::mysql) text << " on conflict do nothing";
        return statements.of(text.take());
    }

    /// On MySQL reads the latest row, as the UPDATE saw it, and not the transaction's snapshot.
    sql::statement look_statement(sql::dialect in, const std::vector<std::string>& schemas) const {
        builder text;
        text << "select " << quoted(in, token) << " from " << quoted_table(in, table);
        append_key(text, in, schemas);
        if (in == sql::dialect::mysql) text << " lock in share mode";
        return statements.of(text.take());
    }

    void validate(sql::dialect in, std::span<const sql::value> values, fencing_token with,
                  assignments_view assignments) const {
        require(with.value() > 0, "a fenced write needs the token of a lease");
        require(values.size() == key.size(), "a fenced write needs a value for each key column");
        require(std::ranges::none_of(values, &sql::value::is_null),
                "a key column cannot be NULL in a fenced write: NULL equals nothing");
        require(std::ranges::none_of(
                    assignments,
                    [&](const auto& each) { return sql::same_name(in, each.column, token); }),
                "a fenced write sets the token column itself");
    }

    /// The parameters of update_statement and insert_statement.
    static std::vector<sql::value> parameters(std::span<const sql::value> values,
                                              fencing_token with, assignments_view assignments) {
        std::vector<sql::value> all;
        all.reserve(1 + assignments.size() + values.size());
        all.emplace_back(with.value());
        for (const auto& each : assignments) all.push_back(each.value);
        all.insert(all.end(), values.begin(), values.end());
        return all;
    }

    fenced_write update(sql::connection& db, std::span<const sql::value> values, fencing_token with,
                        assignments_view assignments, sql::deadline until) const {
        const auto schemas = equality(db, until);
        const auto statement = update_statement(db.speaks(), assignments, schemas);
        const auto sent = parameters(values, with, assignments);
        const auto query = look_statement(db.speaks(), schemas);
        constexpr int attempts = 5;
        for (int attempt = 1; attempt <= attempts; ++attempt) {
            if (db.execute(statement, sent, until).affected() > 0) return fenced_write::done;
            const auto row = db.execute(query, values, until);
            if (row.empty()) return fenced_write::missing;
            const auto found = row.maybe_integer(0, 0);
            if (found && *found > with.value()) return fenced_write::refused;
            // MySQL counts changed rows only, so 0 can mean that the row already is as wanted. One
            // attempt cannot prove that, since another thread with our token may just have written
            // the row.
            const bool same = found && *found == with.value();
            if (same && sql::traits_of(db.speaks()).counts_changes_only && attempt > 1) {
                return fenced_write::done;
            }
        }
        throw error{errc::conflict,
                    "the row changed between each write and the read after it: try again"};
    }
};

fenced_table::fenced_table(std::string table, std::vector<std::string> key,
                           std::string token_column) {
    require(!key.empty(), "a fenced table needs at least one key column");
    auto sorted = key;
    sorted.push_back(token_column);
    std::ranges::sort(sorted);
    require(std::ranges::adjacent_find(sorted) == sorted.end(),
            "a fenced table names a column twice");
    // The strictest rules of the other databases are checked later, with the connection; the rest
    // now.
    for (const auto& column : sorted) static_cast<void>(quoted(sql::dialect::mysql, column));
    static_cast<void>(quoted_table(sql::dialect::mysql, table));
    auto made = std::make_shared<shared>();
    made->table = std::move(table);
    made->key = std::move(key);
    made->token = std::move(token_column);
    shared_ = std::move(made);
}

fenced_write fenced_table::update(sql::connection& db, const row_key& key, fencing_token token,
                                  const std::vector<assignment>& assignments,
                                  sql::deadline until) const {
    shared_->validate(db.speaks(), key.values(), token, assignments);
    return shared_->update(db, key.values(), token, assignments, until);
}

fenced_write fenced_table::put(sql::connection& db, const row_key& key, fencing_token token,
                               const std::vector<assignment>& assignments,
                               sql::deadline until) const {
    shared_->validate(db.speaks(), key.values(), token, assignments);
    require(std::ranges::none_of(assignments, &assignment::adds),
            "put() increments nothing, since the row may be a new one: update() does");
    constexpr int attempts = 5;
    for (int attempt = 0; attempt < attempts; ++attempt) {
        const auto updated = shared_->update(db, key.values(), token, assignments, until);
        if (updated != fenced_write::missing) return updated;
        try {
            const auto sent = shared::parameters(key.values(), token, assignments);
            const auto insert = shared_->insert_statement(db.speaks(), assignments);
            if (db.execute(insert, sent, until).affected() > 0) return fenced_write::done;
        } catch (const error& failure) {
            if (failure.kind() != errc::unique_violation) throw;
        }
    }
    throw error{errc::conflict,
                "the row can be neither updated nor inserted: another unique index refuses it, or "
                "the transaction's snapshot does not show it"};
}

std::vector<std::string> fence_token_sql(sql::dialect dialect, const std::string& table,
                                         const fence_token_options& options) {
    const std::string path = std::string{to_string(dialect)} + "/templates/fence_token.sql";
    const auto files = embedded::template_files();
    const auto file = std::ranges::find(files, path, &embedded::file::path);
    if (file == files.end()) {
        throw error{errc::unsupported, "there is no fence token template for this dialect"};
    }
    const auto places = entries_of(dialect, table, options.column);
    constexpr std::string_view marker = "-- trigger\n";
    std::vector<std::string> statements;
    for (std::string_view rest = file->text; !rest.empty();) {
        const auto next = std::min(rest.find("\n\n"), rest.size());
        const auto part = rest.substr(0, next);
        if (part.starts_with(marker) && !options.trigger) break;
        statements.push_back(filled(statement_in(part), places));
        rest.remove_prefix(std::min(next + 2, rest.size()));
    }
    return statements;
}

}  // namespace rowlock

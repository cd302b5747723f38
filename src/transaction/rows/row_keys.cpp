#include "transaction/rows/row_keys.hpp"

#include "base/ascii.hpp"
#include "sql/catalog_question.hpp"
#include "sql/connection_memory.hpp"
#include "sql/identifier.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <set>

namespace rowlock::detail {
namespace {

// Far more than the tables that a program locks; bounds the cache of a program that makes up names.
constexpr std::size_t most_keys = 500;

/// The rows of the statement row_table.
class description {
public:
    explicit description(sql::result rows) : rows_{std::move(rows)} {}

    struct line {
        std::string_view a, b, c;
        bool named = false;  ///< b is not NULL
    };

    [[nodiscard]] std::vector<line> lines(std::string_view what) const {
        std::vector<line> found;
        for (std::size_t row = 0; row < rows_.rows(); ++row) {
            if (rows_.text(row, 0) != what) continue;
            found.push_back({rows_.text(row, 1), rows_.text(row, 2), rows_.text(row, 3),
                             !rows_.is_null(row, 2)});
        }
        return found;
    }

private:
    sql::result rows_;
};

[[noreturn]] void refuse_table(std::string_view table, std::string_view why) {
    throw error{errc::unsupported,
                "rows of " + std::string{table} + " cannot be locked: " + std::string{why}};
}

void require_lockable(sql::dialect speaks, std::string_view table, const description& found) {
    const auto lines = found.lines("table");
    if (lines.empty()) {
        throw error{errc::schema_outdated,
                    "there is no table " + std::string{table} +
                        " here: check its name, the schema and the current database"};
    }
    const auto& [type, detail, ignored, named] = lines.front();
    if (speaks == sql::dialect::postgresql) {
        if (type != "r" && type != "p")
            refuse_table(table, "it is not a table; lock the table beneath");
        if (detail == "1") {
            refuse_table(table,
                         "other tables inherit from it, and its unique indexes do not "
                         "cover their rows; lock the one that has the row");
        }
    } else if (speaks == sql::dialect::mysql) {
        if (type != "BASE TABLE" && type != "SYSTEM VERSIONED") {
            refuse_table(table, "it is not a table; lock the table beneath");
        }
        if (detail != "InnoDB") refuse_table(table, "its storage engine has no row locks");
    } else if (type != "table") {
        refuse_table(table, "it is a view; lock the table beneath");
    }
}

known_key::column describe_column(sql::dialect speaks, std::string_view table,
                                  std::string_view name, const description& found) {
    const auto columns = found.lines("column");
    const auto column = std::ranges::find_if(
        columns, [&](const auto& each) { return sql::same_name(speaks, each.a, name); });
    if (column == columns.end()) {
        throw error{errc::schema_outdated, "the table " + std::string{table} + " has no column " +
                                               std::string{name} + ": check the key's columns"};
    }
    known_key::column made{.name = sql::quoted(speaks, name),
                           .type = {},
                           .charset = {},
                           .collation = {},
                           .equals = sql::binary_operator(speaks, "=", column->b)};
    if (speaks != sql::dialect::mysql) return made;
    made.type = column->b;
    const auto type = ascii::lower(column->b.substr(0, column->b.find_first_of("( ")));
    const bool integer = (type.ends_with("int") && !type.ends_with("point")) || type == "bit";
    if (integer) made.holds = known_key::kind::integer;
    if (type.ends_with("binary") || type.ends_with("blob")) made.holds = known_key::kind::text;
    if (const auto blank = column->c.find(' '); blank != std::string_view::npos) {
        made.holds = known_key::kind::text;
        if (const auto charset = column->c.substr(0, blank); charset != "utf8mb4") {
            made.charset = charset;
            made.collation = column->c.substr(blank + 1);
        }
    }
    return made;
}

/// The name of a unique index whose columns are all in the key; empty if there is none.
std::string find_index(sql::dialect speaks, const key_columns& key, const description& found) {
    std::map<std::string, bool> covered;  // the primary key's name is often the first
    for (const auto& each : found.lines("key")) {
        const bool partly = !each.c.empty();
        const bool given =
            each.named && !partly && std::ranges::any_of(key.names(), [&](auto name) {
                return sql::same_name(speaks, name, each.b);
            });
        auto& all = covered.try_emplace(std::string{each.a}, true).first->second;
        all = all && given;
    }
    if (const auto primary = covered.find("PRIMARY"); primary != covered.end() && primary->second) {
        return primary->first;
    }
    for (const auto& [name, all] : covered) {
        if (all) return name;
    }
    return {};
}

[[noreturn]] void refuse_key(sql::dialect speaks, std::string_view table) {
    const std::string effect =
        speaks == sql::dialect::mysql
            ? "so InnoDB would lock every row that it reads, a range or the whole table"
        : speaks == sql::dialect::postgresql
            ? "so every row that matches would be locked, after a search of the whole table"
            : "so any number of rows may match";
    throw error{errc::unindexed_key, "no unique index of " + std::string{table} +
                                         " consists of columns of this key, " + effect +
                                         ": create one, or name the primary key"};
}

known_key describe(sql::connection& db, std::string_view table, const key_columns& columns,
                   sql::deadline until) {
    const auto speaks = db.speaks();
    known_key made{.table = sql::quoted_table(speaks, table),
                   .index = {},
                   .columns = {},
                   .plan_checked = std::make_shared<std::atomic<bool>>(false),
                   .since = std::chrono::steady_clock::now()};
    static const sql::catalog_question row_table{"row_table"};
    const description found{row_table.ask(db, table, until)};
    require_lockable(speaks, table, found);
    for (const auto name : columns.names()) {
        made.columns.push_back(describe_column(speaks, table, name, found));
    }
    const auto index = find_index(speaks, columns, found);
    if (index.empty()) refuse_key(speaks, table);
    if (speaks == sql::dialect::mysql) made.index = sql::quoted(speaks, index);
    return made;
}

std::string cache_key(std::string_view table, const key_columns& columns) {
    std::string made{table};
    for (const auto name : columns.names()) {
        made += '\0';
        made += name;
    }
    return made;
}

void require_distinct(const key_columns& columns) {
    if (columns.names().empty()) {
        throw error{errc::invalid_options, "a row's key needs at least one column"};
    }
    const std::set<std::string_view> different{columns.names().begin(), columns.names().end()};
    if (different.size() != columns.names().size()) {
        throw error{errc::invalid_options, "a column appears twice in a row's key"};
    }
}

}  // namespace

row_keys& row_keys::of(sql::connection& db) {
    auto& keys = sql::memory_of(db).keys;
    if (!keys) keys = std::make_shared<row_keys>();
    return *keys;
}

known_key row_keys::find(sql::connection& db, std::string_view table, const key_columns& columns,
                         std::chrono::milliseconds trust, sql::deadline until) {
    require_distinct(columns);
    const auto name = cache_key(table, columns);
    {
        const std::lock_guard lock{mutex_};
        const auto known = keys_.find(name);
        if (known != keys_.end() &&
            std::chrono::floor<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                          known->second.since) < trust) {
            return known->second;
        }
    }
    auto found = describe(db, table, columns, until);
    const std::lock_guard lock{mutex_};
    if (keys_.size() >= most_keys) {
        keys_.clear();
        ++alterations_;
    }
    const auto known = keys_.find(name);
    const bool as_it_was = known != keys_.end() && known->second.columns == found.columns;
    if (known != keys_.end() && !as_it_was) ++alterations_;
    found.alterations = as_it_was ? known->second.alterations : alterations_;
    keys_.insert_or_assign(name, found);
    return found;
}

void row_keys::forget(std::string_view table, const key_columns& columns) {
    const std::lock_guard lock{mutex_};
    if (keys_.erase(cache_key(table, columns)) > 0) ++alterations_;
}

}  // namespace rowlock::detail

#include "sql/database_traits.hpp"
#include "sql/identifier.hpp"
#include "sql/statement_cache.hpp"
#include "sql/statements.hpp"
#include "transaction/optimistic/column_types.hpp"
#include "transaction/optimistic/version_sql.hpp"
#include <rowlock/error.hpp>
#include <rowlock/optimistic.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <list>
#include <mutex>

namespace rowlock {

using namespace optimistic;

namespace {

/// The end of the year 9999 in microseconds since 1970: the latest time that every database stores.
constexpr std::int64_t last_time = 253'402'300'799'999'999;
/// 1973 in microseconds since 1970. A smaller number is a time in seconds or milliseconds.
constexpr std::int64_t least_plausible_time = 100'000'000'000'000;

[[noreturn]] void refuse(const std::string& why) {
    throw error{errc::invalid_options, why};
}

std::optional<std::int64_t> whole_number(std::string_view text) {
    std::int64_t number = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (failure != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return number;
}

bool all_digits(std::string_view text) {
    return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

void validate(const table_description& given) {
    if (given.table.empty()) refuse("a versioned_table needs a table");
    if (given.key.empty()) refuse("a versioned_table needs the columns of its key");
    if (given.version.name().empty()) refuse("a versioned_table needs a version column");
    if (given.statement_timeout <= std::chrono::milliseconds{0} ||
        given.statement_timeout > std::chrono::minutes{1}) {
        refuse("statement_timeout must be positive and at most one minute");
    }
    std::vector<std::string> columns = given.key;
    columns.push_back(given.version.name());
    if (!given.deleted_at.empty()) columns.push_back(given.deleted_at);
    std::ranges::sort(columns);
    if (std::ranges::adjacent_find(columns) != columns.end()) {
        refuse("a versioned_table names one column twice");
    }
}

constexpr bool beyond_ascii(char c) {
    return static_cast<unsigned char>(c) >= 0x80;
}

/// A table as found on one dialect.
struct known_table {
    table_shape shape;
    std::int64_t most;  ///< the greatest version
    std::vector<storage> key;
    column_types columns;  ///< as of the lookup
};

known_table known(const table_description& from, sql::connection& db, sql::deadline until) {
    const sql::dialect speaks = db.speaks();
    auto types = column_types::of(db, from.table, until);
    const column_type& version = types.at(from.version.name());
    require_version_type(speaks, version, from.version.is_time());
    known_table made{.shape = {.speaks = speaks,
                               .table = sql::quoted_table(speaks, from.table),
                               .key = {},
                               .version = sql::quoted(speaks, from.version.name()),
                               .version_is_time = from.version.is_time(),
                               .version_stored = version.stored},
                     .most = from.version.is_time() ? last_time : version.most,
                     .key = {},
                     .columns = {}};
    for (const std::string& column : from.key) {
        made.shape.key.push_back(sql::quoted(speaks, column));
        made.key.push_back(types.at(column).stored);
        made.shape.equality.push_back(types.at(column).equality);
    }
    if (!from.deleted_at.empty()) {
        const column_type& deleted = types.at(from.deleted_at);
        require_deleted_type(deleted);
        made.shape.deleted_at = sql::quoted(speaks, from.deleted_at);
        made.shape.deleted_stored = deleted.stored;
    }
    made.columns = std::move(types);
    return made;
}

/// MySQL folds the case of every letter, this code only that of ASCII: `GRÖSSE` could be the
/// version under another name. So a name beyond ASCII must match the catalog's, letter by letter.
void require_spelling(const known_table& table, std::string_view column) {
    if (!sql::folds_beyond_ascii(table.shape.speaks)) return;
    if (std::ranges::none_of(column, beyond_ascii) || table.columns.find(column)) return;
    refuse("a column with letters beyond ASCII must be spelt as in the table");
}

/// Parameters, and the texts that were made for them.
class parameters {
public:
    void add(const sql::value& what) { values_.push_back(what); }
    void add_copy(std::string text) { values_.emplace_back(texts_.emplace_back(std::move(text))); }
    [[nodiscard]] const std::vector<sql::value>& values() const noexcept { return values_; }

private:
    std::vector<sql::value> values_;
    std::list<std::string> texts_;  // nodes stay where they are
};

/// MySQL compares a text column with a number, and a number with a text, as floating point: 5 would
/// match '5 apples', and 'abc' the row 0, both by a table scan. So each value is sent in its
/// column's type.
void add_key_in_type(parameters& to, const sql::value& given, storage column) {
    if (column == storage::text && given.type() == sql::value::kind::integer) {
        return to.add_copy(std::to_string(given.integer()));
    }
    const bool number_wanted = column == storage::integer || column == storage::number;
    if (number_wanted && given.type() == sql::value::kind::text) {
        const auto number = whole_number(given.text());
        if (number) return to.add(*number);
        // Beyond 64 bits all servers compare exactly only with an integer column.
        if (column == storage::number || !all_digits(given.text())) {
            refuse("the key of this table is a number: give an integer");
        }
    }
    to.add(given);
}

void add_key(parameters& to, const known_table& table, const row_key& key) {
    if (key.values().size() != table.key.size()) {
        refuse("the key of this table has " + std::to_string(table.key.size()) + " columns, but " +
               std::to_string(key.values().size()) + " values were given");
    }
    for (std::size_t index = 0; index < table.key.size(); ++index) {
        const sql::value& each = key.values()[index];
        if (each.is_null()) refuse("a key cannot hold NULL, which equals nothing");
        if (sql::traits_of(table.shape.speaks).compares_as_floating_point) {
            add_key_in_type(to, each, table.key[index]);
        } else {
            to.add(each);
        }
    }
}

bool time_as_text(const known_table& table, const row_version& version) {
    return has_untyped_time(table.shape) && !whole_number(version.str());
}

/// Adds the version as it was seen. SQLite compares times as text, whatever type the row has.
void add_seen(parameters& to, const known_table& table, const row_version& seen) {
    if (has_untyped_time(table.shape)) {
        return to.add(seen.str());
    }
    const std::int64_t number = seen.number();
    // PostgreSQL would fail the statement, and with it the transaction.
    if (number > table.most || number < -table.most - 1) {
        refuse("this version is greater or smaller than any that the column can hold");
    }
    to.add(number);
}

void require_growth(const known_table& table, const row_version& seen) {
    if (time_as_text(table, seen) || seen.number() < table.most) return;
    throw error{errc::database_error,
                table.shape.version_is_time
                    ? "the version of this row is a time at the end of the calendar: correct it"
                    : "the version of this row is the greatest that its column holds: make the "
                      "column a BIGINT, or set the version back while no program uses the table"};
}

[[noreturn]] void refuse_stuck() {
    throw error{errc::database_error,
                "the version of this row is no time that can move on (NULL, infinite, past the "
                "year 9999, or text that SQLite's date functions do not read): correct it"};
}

[[noreturn]] void refuse_several() {
    throw error{
        errc::unindexed_key,
        "the key of a versioned_table matched more than one row: it must name the columns "
        "of a primary key or unique index. If this was a change it was made to all of them: "
        "roll back"};
}

[[noreturn]] void refuse_suppressed() {
    throw error{errc::unsupported,
                "the row has the version seen, but the database leaves it as it is: a trigger, a "
                "rule or a row-level security policy suppresses the change"};
}

[[noreturn]] void refuse_unindexed() {
    throw error{errc::unindexed_key,
                "a versioned_table can insert only where a primary key or a unique index of just "
                "the columns of the key detects an existing row"};
}

/// True if PostgreSQL or SQLite reports that no unique index fits ON CONFLICT.
bool lacks_unique_index(const error& failure) {
    return failure.sqlstate() == "42P10" ||
           failure.server_message().find("ON CONFLICT clause does not match") != std::string::npos;
}

row_version read_version(const known_table& table, const sql::result& rows) {
    if (rows.is_null(0, 0)) {
        throw error{errc::database_error,
                    "the version of this row is NULL or no finite time: declare its column NOT "
                    "NULL and give it a value"};
    }
    row_version version{std::string{rows.text(0, 0)}};
    if (!table.shape.version_is_time) {
        (void)rows.integer(0, 0);
    } else if (has_untyped_time(table.shape)) {
        const auto number = whole_number(version.str());
        if (number && *number < least_plausible_time) {
            throw error{errc::database_error,
                        "the version of this row is a number, but not of microseconds since 1970"};
        }
    }
    return version;
}

/// Whether a row that a change did not match still has the version seen. Unknown on MySQL, where an
/// old snapshot shows that version too.
bool is_unmoved(const known_table& table, const row_version& seen, const sql::result& rows) {
    return answers_version(table.shape) && !rows.is_null(0, 0) && rows.text(0, 0) == seen.str();
}

/// Reads the new version from a change with RETURNING. A trigger that writes the version, such as
/// one that sets it to now(), may have kept it from advancing.
row_version moved(const known_table& table, const row_version& seen, const sql::result& rows) {
    row_version now = read_version(table, rows);
    const bool ahead = time_as_text(table, seen) ? now != seen : now.number() > seen.number();
    if (ahead) return now;
    throw error{errc::unsupported,
                "the version did not move on with this change: does a trigger write its column? "
                "Other changes may be lost; roll back"};
}

}  // namespace

// --- values -------------------------------------------------------------------------------------

std::int64_t row_version::number() const {
    if (const auto number = whole_number(text_)) return *number;
    refuse("this version is not a number");
}

const update_result& update_result::or_throw() const {
    if (what_ == outcome::done) return *this;
    throw detail::conflict_error();
}

// --- the table ----------------------------------------------------------------------------------

class versioned_table::state {
public:
    explicit state(table_description description) : description_{std::move(description)} {
        validate(description_);
    }

    [[nodiscard]] const table_description& description() const noexcept { return description_; }
    [[nodiscard]] sql::deadline until() const {
        return std::chrono::steady_clock::now() + description_.statement_timeout;
    }

    /// The table as the catalog describes it; looked up once per dialect.
    const known_table& on(sql::connection& db) {
        auto& place = known_.at(static_cast<std::size_t>(db.speaks()));
        {
            const std::lock_guard lock{mutex_};
            if (place) return *place;
        }
        auto asked = std::make_unique<const known_table>(known(description_, db, until()));
        const std::lock_guard lock{mutex_};
        if (!place) place = std::move(asked);  // never replaced: callers hold references to it
        return *place;
    }

    sql::result run(sql::connection& db, const std::string& text, const parameters& bound) {
        return db.execute(statements_.of(text), bound.values(), until());
    }

    /// Returns the version, the mark, whether the version can advance, and the columns; no row if
    /// the key matches none.
    sql::result read(sql::connection& db, const row_key& key, const std::string& text) {
        parameters bound;
        add_key(bound, on(db), key);
        sql::result rows = run(db, text, bound);
        if (rows.rows() > 1) refuse_several();
        return rows;
    }

    void require_assignable(const known_table& table, const std::vector<assignment>& values,
                            bool inserting) const;

    /// Explains a change that matched no row; returns nullopt if it should have matched.
    std::optional<update_result> why_not(sql::connection& db, const row_key& key,
                                         const row_version& seen, mark how);
    /// The version to write on MySQL.
    std::int64_t new_version(sql::connection& db, std::int64_t at_least) const;
    update_result change(sql::connection& db, const row_key& key, const row_version& seen,
                         const std::vector<assignment>& values, mark how);
    update_result erase(sql::connection& db, const row_key& key, const row_version& seen);
    std::optional<row_version> insert(sql::connection& db, const row_key& key,
                                      const std::vector<assignment>& values);
    void require_mark() const {
        if (description_.deleted_at.empty()) refuse("this versioned_table names no deleted_at");
    }

private:
    table_description description_;
    std::mutex mutex_;
    std::array<std::unique_ptr<const known_table>, 3> known_;
    // Far more than the statement shapes that one table sees.
    sql::statement_cache statements_{128};
};

void versioned_table::state::require_assignable(const known_table& table,
                                                const std::vector<assignment>& values,
                                                bool inserting) const {
    const sql::dialect speaks = table.shape.speaks;
    for (auto each = values.begin(); each != values.end(); ++each) {
        require_spelling(table, each->column);
        const auto is = [&](std::string_view name) {
            return sql::same_name(speaks, each->column, name);
        };
        if (is(description_.version.name()) || std::ranges::any_of(description_.key, is)) {
            refuse("the key and the version of a row cannot be assigned");
        }
        if (!description_.deleted_at.empty() && is(description_.deleted_at)) {
            refuse("deleted_at is written by soft_delete() and restore() alone");
        }
        if (inserting && each->adds) refuse("a new row has nothing to increment");
        if (std::any_of(values.begin(), each,
                        [&](const assignment& other) { return is(other.column); })) {
            refuse("a column is assigned twice");
        }
    }
}

std::optional<update_result> versioned_table::state::why_not(sql::connection& db,
                                                             const row_key& key,
                                                             const row_version& seen, mark how) {
    const sql::result rows = read(db, key, read_text(on(db).shape, {}));
    if (rows.empty()) return update_result::gone();
    const bool deleted = rows.integer(0, 1) != 0;
    const bool unmarked = how != mark::clear;
    if (!description_.deleted_at.empty() && deleted == unmarked) return update_result::gone();
    if (!is_unmoved(on(db), seen, rows)) return update_result::conflict();
    if (rows.integer(0, 2) == 0) refuse_stuck();
    return std::nullopt;
}

std::int64_t versioned_table::state::new_version(sql::connection& db, std::int64_t at_least) const {
    static const sql::statement clock = sql::load_statement(sql::dialect::mysql, "utc_now");
    return std::max(db.execute(clock, {}, until()).integer(0, 0), at_least);
}

update_result versioned_table::state::change(sql::connection& db, const row_key& key,
                                             const row_version& seen,
                                             const std::vector<assignment>& values, mark how) {
    const known_table& table = on(db);
    require_assignable(table, values, false);
    parameters bound;
    add_key(bound, table, key);
    add_seen(bound, table, seen);
    require_growth(table, seen);
    std::int64_t next = 0;
    if (!answers_version(table.shape)) {
        next = seen.number() + 1;
        if (needs_new_version(table.shape)) bound.add(next = new_version(db, next));
    }
    for (const assignment& each : values) bound.add(each.value);
    const std::string text = update_text(table.shape, values, how);
    // Tries twice: a row that is erased and recreated in between may have the version seen again.
    for (int attempt = 1; attempt <= 2; ++attempt) {
        const sql::result rows = run(db, text, bound);
        const auto changed =
            answers_version(table.shape) ? static_cast<std::int64_t>(rows.rows()) : rows.affected();
        if (changed > 1) refuse_several();
        if (changed == 1 && !answers_version(table.shape)) {
            return update_result::done(row_version{next});
        }
        if (changed == 1) return update_result::done(moved(table, seen, rows));
        if (const auto why = why_not(db, key, seen, how)) return *why;
    }
    refuse_suppressed();
}

update_result versioned_table::state::erase(sql::connection& db, const row_key& key,
                                            const row_version& seen) {
    const known_table& table = on(db);
    parameters bound;
    add_key(bound, table, key);
    add_seen(bound, table, seen);
    const std::string text = erase_text(table.shape);
    for (int attempt = 1; attempt <= 2; ++attempt) {  // as above
        const auto erased = run(db, text, bound).affected();
        if (erased > 1) refuse_several();
        if (erased == 1) return update_result::done(seen);
        const sql::result rows = read(db, key, read_text(table.shape, {}));
        if (rows.empty()) return update_result::gone();
        if (!is_unmoved(table, seen, rows)) return update_result::conflict();
    }
    refuse_suppressed();
}

std::optional<row_version> versioned_table::state::insert(sql::connection& db, const row_key& key,
                                                          const std::vector<assignment>& values) {
    const known_table& table = on(db);
    require_assignable(table, values, true);
    parameters bound;
    add_key(bound, table, key);
    std::int64_t first = 1;
    if (needs_new_version(table.shape)) bound.add(first = new_version(db, 0));
    for (const assignment& each : values) bound.add(each.value);
    const std::string text = insert_text(table.shape, values);
    for (int attempt = 1;; ++attempt) {
        try {
            const sql::result rows = run(db, text, bound);
            if (!answers_version(table.shape)) return row_version{first};
            if (rows.empty()) return std::nullopt;
            return read_version(table, rows);
        } catch (const error& failure) {
            if (lacks_unique_index(failure)) refuse_unindexed();
            if (answers_version(table.shape) || failure.kind() != errc::unique_violation) throw;
            // Only the failed statement was undone.
            if (!read(db, key, read_newest_text(table.shape)).empty()) return std::nullopt;
            // A violation of another unique index is the caller's to handle. But outside a
            // transaction the row may just have been erased, so try once more.
            if (attempt == 2) throw;
        }
    }
}

versioned_table::versioned_table(table_description description)
    : state_{std::make_shared<state>(std::move(description))} {}

const table_description& versioned_table::description() const noexcept {
    return state_->description();
}

std::optional<versioned_row> versioned_table::read(sql::connection& db, const row_key& key,
                                                   const std::vector<std::string>& columns,
                                                   deleted_rows deleted) const {
    const known_table& table = state_->on(db);
    std::vector<std::string> quoted;
    quoted.reserve(columns.size());
    for (const std::string& column : columns) {
        quoted.push_back(sql::quoted(db.speaks(), column));
    }
    sql::result rows = state_->read(db, key, read_text(table.shape, quoted));
    if (rows.empty()) return std::nullopt;
    const bool marked = rows.integer(0, 1) != 0;
    if (marked && deleted == deleted_rows::hidden) return std::nullopt;
    row_version version = read_version(table, rows);
    // The columns follow the version, the mark, and whether the version can advance.
    return versioned_row{table_row{columns, std::move(rows), 3}, std::move(version), marked};
}

std::optional<row_version> versioned_table::insert(
    sql::connection& db, const row_key& key, const std::vector<assignment>& assignments) const {
    return state_->insert(db, key, assignments);
}

update_result versioned_table::update(sql::connection& db, const row_key& key,
                                      const row_version& seen,
                                      const std::vector<assignment>& assignments) const {
    return state_->change(db, key, seen, assignments, mark::keep);
}

update_result versioned_table::erase(sql::connection& db, const row_key& key,
                                     const row_version& seen) const {
    return state_->erase(db, key, seen);
}

update_result versioned_table::soft_delete(sql::connection& db, const row_key& key,
                                           const row_version& seen) const {
    state_->require_mark();
    return state_->change(db, key, seen, {}, mark::set);
}

update_result versioned_table::restore(sql::connection& db, const row_key& key,
                                       const row_version& seen) const {
    state_->require_mark();
    return state_->change(db, key, seen, {}, mark::clear);
}

}  // namespace rowlock

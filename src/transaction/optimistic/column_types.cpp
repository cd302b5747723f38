#include "transaction/optimistic/column_types.hpp"

#include "sql/catalog_question.hpp"
#include "sql/identifier.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <array>

namespace rowlock::optimistic {
namespace {

constexpr int all_digits = 6;

struct named_type {
    std::string_view name;
    storage stored;
    std::int64_t most = std::numeric_limits<std::int64_t>::max();
};

constexpr std::array postgresql_types{
    named_type{"int2", storage::integer, 32'767},
    named_type{"int4", storage::integer, 2'147'483'647},
    named_type{"int8", storage::integer},
    named_type{"timestamptz", storage::zoned_time},
    named_type{"timestamp", storage::plain_time},
    named_type{"text", storage::text},
    named_type{"varchar", storage::text},
};

// Unsigned types hold twice as much plus one.
constexpr std::array mysql_types{
    named_type{"tinyint", storage::integer, 127},
    named_type{"smallint", storage::integer, 32'767},
    named_type{"mediumint", storage::integer, 8'388'607},
    named_type{"int", storage::integer, 2'147'483'647},
    named_type{"bigint", storage::integer},
    named_type{"decimal", storage::number},
    named_type{"float", storage::number},
    named_type{"double", storage::number},
    named_type{"datetime", storage::plain_time},
    named_type{"timestamp", storage::local_time},
    named_type{"char", storage::text},
    named_type{"varchar", storage::text},
    named_type{"binary", storage::text},
    named_type{"varbinary", storage::text},
    named_type{"tinytext", storage::text},
    named_type{"text", storage::text},
    named_type{"mediumtext", storage::text},
    named_type{"longtext", storage::text},
    named_type{"enum", storage::text},
    named_type{"set", storage::text},
    named_type{"uuid", storage::text},
};

template <typename Table>
column_type find_type(const Table& table, std::string_view name) {
    const auto found = std::ranges::find(table, name, &named_type::name);
    if (found == table.end()) return {.stored = storage::other, .declared = std::string{name}};
    return {.stored = found->stored, .declared = std::string{name}, .most = found->most};
}

// The row has: name, type, the full type, modifier or digits.
column_type read_type(sql::dialect speaks, const sql::result& rows, std::size_t row) {
    const std::string_view name = rows.text(row, 1);
    switch (speaks) {
        case sql::dialect::postgresql: {
            column_type type = find_type(postgresql_types, name);
            const auto modifier = rows.maybe_integer(row, 3).value_or(-1);
            type.digits = modifier < 0 ? all_digits : static_cast<int>(modifier);
            type.equality = rows.text(row, 4);
            return type;
        }
        case sql::dialect::mysql: {
            column_type type = find_type(mysql_types, name);
            const bool unsigned_type = rows.text(row, 2).find("unsigned") != std::string_view::npos;
            const bool doubles = type.stored == storage::integer &&
                                 type.most < std::numeric_limits<std::int64_t>::max();
            if (unsigned_type && doubles) type.most = type.most * 2 + 1;
            type.digits = static_cast<int>(rows.maybe_integer(row, 3).value_or(0));
            return type;
        }
        case sql::dialect::sqlite:
            break;
    }
    // SQLite's rule for a column's affinity; each row's own value is checked in the row.
    const bool integer = name.find("int") != std::string_view::npos;
    return {.stored = integer ? storage::integer : storage::text,
            .declared = std::string{name},
            .digits = all_digits};
}

/// SQLite's rule for REAL affinity: every number written to such a column becomes floating point.
bool keeps_reals(std::string_view declared) {
    const auto has = [&](std::string_view part) {
        return declared.find(part) != std::string_view::npos;
    };
    return !has("int") && !has("char") && !has("clob") && !has("text") && !has("blob") &&
           (has("real") || has("floa") || has("doub"));
}

[[noreturn]] void refuse_column(const std::string& why) {
    throw error{errc::unsupported, why};
}

}  // namespace

column_types column_types::of(sql::connection& db, std::string_view table, sql::deadline until) {
    column_types made;
    made.speaks_ = db.speaks();
    static const sql::catalog_question types{"column_types"};
    const sql::result rows = types.ask(db, table, until);
    if (rows.empty()) {
        throw error{errc::schema_outdated,
                    "the table of a versioned_table is missing, or this user may not see it"};
    }
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        made.columns_.emplace_back(rows.text(row, 0), read_type(made.speaks_, rows, row));
    }
    return made;
}

const column_type* column_types::find(std::string_view column) const noexcept {
    const auto same = [&](const auto& each) { return sql::same_name(speaks_, each.first, column); };
    const auto found = std::ranges::find_if(columns_, same);
    return found == columns_.end() ? nullptr : &found->second;
}

const column_type& column_types::at(std::string_view column) const {
    if (const column_type* const found = find(column)) return *found;
    throw error{errc::schema_outdated,
                "a column that the description of a versioned_table names is missing"};
}

void require_version_type(sql::dialect speaks, const column_type& type, bool is_time) {
    if (speaks == sql::dialect::sqlite) {
        // Otherwise each row's own value is checked.
        if (!is_time && keeps_reals(type.declared)) {
            refuse_column("the version column must be of an integer type, not " + type.declared);
        }
        return;
    }
    if (!is_time) {
        if (type.stored == storage::integer) return;
        refuse_column("the version column must be of an integer type, not " + type.declared +
                      "; for a time use updated_at{column}");
    }
    if (type.stored == storage::local_time) {
        refuse_column(
            "a TIMESTAMP cannot be a version: in the hour that daylight saving repeats two "
            "instants read alike; make it DATETIME(6)");
    }
    if (type.stored != storage::zoned_time && type.stored != storage::plain_time) {
        refuse_column("a version that is a time must be " +
                      std::string{speaks == sql::dialect::mysql ? "DATETIME(6)"
                                                                : "timestamptz or timestamp"} +
                      ", not " + type.declared);
    }
    if (type.digits < all_digits) {
        refuse_column(
            "a time that is a version needs all six digits: with fewer, a program that writes "
            "plain "
            "now() makes two changes look like one; alter the column, or use a counter");
    }
}

void require_deleted_type(const column_type& type) {
    if (type.stored != storage::other && type.stored != storage::number) return;
    refuse_column("the column deleted_at must hold a time or an integer, not " + type.declared);
}

}  // namespace rowlock::optimistic

#include <rowlock/sql/classify.hpp>

#include <algorithm>
#include <array>

namespace rowlock::sql {
namespace {

struct sqlstate_kind {
    std::string_view sqlstate;  // a code, or the two characters that open a class's codes
    errc kind;
};

// Codes that differ from the rest of their class.
constexpr std::array codes{
    // 23 integrity constraint violation
    sqlstate_kind{"23505", errc::unique_violation},

    // 25 invalid transaction state
    sqlstate_kind{"25006", errc::read_only},  // a READ ONLY transaction, or a standby
    sqlstate_kind{"25P03",
                  errc::database_unreachable},  // idle_in_transaction_session_timeout, a FATAL

    // 3D, 3F invalid catalog name, schema name
    sqlstate_kind{"3D000", errc::database_unreachable},
    sqlstate_kind{"3F000", errc::schema_outdated},

    // 40 transaction rollback
    sqlstate_kind{"40001", errc::conflict},         // serialization failure
    sqlstate_kind{"40003", errc::outcome_unknown},  // statement completion unknown
    sqlstate_kind{"40P01", errc::deadlock},

    // 42 syntax error or access rule violation
    sqlstate_kind{"42501", errc::access_denied},
    sqlstate_kind{"42703", errc::schema_outdated},  // undefined column
    sqlstate_kind{"42P01", errc::schema_outdated},  // undefined table
    sqlstate_kind{"42P10", errc::schema_outdated},  // ON CONFLICT without its unique index

    // 55 object not in prerequisite state
    sqlstate_kind{"55P03", errc::timed_out},  // lock_timeout, NOWAIT

    // 57 operator intervention
    sqlstate_kind{"57014", errc::timed_out},             // statement_timeout, a cancel
    sqlstate_kind{"57P01", errc::database_unreachable},  // shutdown, pg_terminate_backend()
    sqlstate_kind{"57P02", errc::database_unreachable},  // crash of another process
    sqlstate_kind{"57P03", errc::database_unreachable},  // starting up
    sqlstate_kind{"57P04", errc::database_unreachable},  // the database was dropped
    sqlstate_kind{"57P05", errc::database_unreachable},  // idle_session_timeout
};

// Whole classes.
constexpr std::array classes{
    sqlstate_kind{"08", errc::database_unreachable},  // connection exception
    sqlstate_kind{"0A", errc::unsupported},           // feature not supported
    sqlstate_kind{"28", errc::access_denied},         // invalid authorization specification
    sqlstate_kind{"40", errc::conflict},              // transaction rollback
    sqlstate_kind{"53", errc::out_of_resources},      // disk full, no memory, too many connections
};

template <typename Table>
errc look_up(const Table& table, std::string_view what, errc otherwise) {
    const auto found = std::ranges::find(table, what, &sqlstate_kind::sqlstate);
    return found == table.end() ? otherwise : found->kind;
}

}  // namespace

errc classify_postgresql(std::string_view sqlstate) noexcept {
    if (sqlstate.size() != 5) return errc::database_error;
    const errc by_class = look_up(classes, sqlstate.substr(0, 2), errc::database_error);
    return look_up(codes, sqlstate, by_class);
}

}  // namespace rowlock::sql

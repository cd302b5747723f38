#include <rowlock/sql/classify.hpp>

namespace rowlock::sql {
namespace {

// Primary result codes, sqlite.org/rescode.html. Written out because the core links no database
// library; they are part of SQLite's file-level compatibility promise and do not change.
enum primary : int {
    sqlite_error = 1,
    sqlite_perm = 3,
    sqlite_abort = 4,
    sqlite_busy = 5,
    sqlite_locked = 6,
    sqlite_nomem = 7,
    sqlite_readonly = 8,
    sqlite_interrupt = 9,
    sqlite_ioerr = 10,
    sqlite_full = 13,
    sqlite_cantopen = 14,
    sqlite_protocol = 15,
    sqlite_schema = 17,
    sqlite_constraint = 19,
    sqlite_nolfs = 22,
    sqlite_auth = 23,
};

constexpr int extended(int primary_code, int detail) noexcept {
    return primary_code | (detail << 8);
}

constexpr int error_retry = extended(sqlite_error, 2);
constexpr int error_snapshot = extended(sqlite_error, 3);
constexpr int busy_snapshot = extended(sqlite_busy, 2);
constexpr int readonly_dbmoved = extended(sqlite_readonly, 4);
constexpr int ioerr_fsync = extended(sqlite_ioerr, 4);
constexpr int ioerr_dir_fsync = extended(sqlite_ioerr, 5);
constexpr int ioerr_nomem = extended(sqlite_ioerr, 12);
constexpr int ioerr_shmsize = extended(sqlite_ioerr, 19);
constexpr int constraint_primarykey = extended(sqlite_constraint, 6);
constexpr int constraint_unique = extended(sqlite_constraint, 8);
constexpr int constraint_rowid = extended(sqlite_constraint, 10);

// SQLITE_ERROR covers every mistake in a statement; only the messages distinguish them. They are
// the same since SQLite 3.0 and never translated.
errc classify_sql_error(std::string_view message) noexcept {
    const auto says = [message](std::string_view words) {
        return message.find(words) != std::string_view::npos;
    };
    if (says("no such table") || says("no such column") || says("has no column named") ||
        says("no such index")) {
        return errc::schema_outdated;
    }
    // An SQLite built without, or older than, what we need.
    if (says("no such function") || says("no such module")) return errc::unsupported;
    return errc::database_error;
}

}  // namespace

// A table of SQLite's result codes: one case each.
errc classify_sqlite(int result_code, std::string_view message) noexcept {
    switch (result_code) {
        // Another connection committed after our snapshot: waiting does not help, starting over
        // does.
        case busy_snapshot:
        case error_snapshot:
        case error_retry:
            return errc::conflict;

        case constraint_primarykey:
        case constraint_unique:
        case constraint_rowid:
            return errc::unique_violation;

        // The file was moved or deleted under us. Opening it anew finds the new one, or nothing.
        case readonly_dbmoved:
            return errc::database_unreachable;

        // A commit was written; whether it reached the disk is unknown.
        case ioerr_fsync:
        case ioerr_dir_fsync:
            return errc::outcome_unknown;

        case ioerr_nomem:
        case ioerr_shmsize:
            return errc::out_of_resources;  // the latter: no room for the -shm file
        default:
            break;
    }
    switch (result_code & 0xff) {
        case sqlite_error:
            return classify_sql_error(message);

        // Another connection holds the lock (_RECOVERY and _TIMEOUT too), or our time was up.
        case sqlite_busy:
        case sqlite_interrupt:
        // Ten seconds of lost races for the WAL's locks.
        case sqlite_protocol:
            return errc::timed_out;

        // A lock within one connection or one shared cache, a schema that kept changing, a
        // statement cut off by a rollback: nothing was done, the next attempt sees the new state.
        case sqlite_locked:
        case sqlite_schema:
        case sqlite_abort:
            return errc::conflict;

        case sqlite_perm:
        case sqlite_auth:
            return errc::access_denied;

        case sqlite_readonly:
            return errc::read_only;

        case sqlite_full:
        case sqlite_nomem:
            return errc::out_of_resources;

        case sqlite_cantopen:
            return errc::database_unreachable;

        case sqlite_nolfs:
            return errc::unsupported;

        // Everything else is a broken file, disk or program: SQLITE_CORRUPT, NOTADB, IOERR, the
        // other CONSTRAINTs, MISMATCH, MISUSE, RANGE, TOOBIG, INTERNAL …
        default:
            return errc::database_error;
    }
}

}  // namespace rowlock::sql

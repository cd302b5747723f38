#pragma once

#include <rowlock/sql/connection.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

struct sqlite3;

/// SQLite3 (3.35 or newer), for the processes of one host that share one file. Component
/// `rowlock::sqlite`.
///
/// fork(): SQLite cannot use a file in a child that its parent had open. In the child, connections
/// throw errc::wrong_process and are not closed; connecting anew to a file that one of our
/// connections had open at the fork throws it too. Fork first, or start another program.
///
/// Do not open and close the file by other means (such as to copy it) in a process that uses it:
/// under POSIX rules that drops all its locks.
namespace rowlock::sqlite {

/// Options of open().
struct options {
    /// Creates the file, with mode 0600, if it is missing. Otherwise a missing file is an error.
    bool create = true;
    /// Replaces the database's clock, for tests: microseconds since the epoch. Registered as the
    /// SQL function rowlock_testing_now().
    std::function<std::int64_t()> testing_clock = {};
};

/// A source of connections of our own, in WAL mode with synchronous=FULL: a grant survives a power
/// cut. Deadlines are kept for locks and for statements, at any instruction; a write to the disk is
/// not interrupted. The next call notices a file that was moved or deleted while open
/// (errc::database_unreachable). From the first lock conflict on, connections also use the file
/// `<database>-turns` (16 KiB, mode and owner of the database), which gives writers an order. It
/// may be deleted while no client runs.
/// @param url `sqlite:relative/path` (to the current working folder), `sqlite:/absolute/path` or
/// `sqlite:///absolute/path`, percent-decoded, with `?synchronous=normal` for faster grants that a
/// power cut (not a crash) may undo, `?create=false`, and `?rowlock_prefix=…` (see table_names).
/// `sqlite::memory:` is refused: no other process could see such a lock. Connecting refuses network
/// file systems (errc::unsupported).
/// @throws error errc::invalid_url. Opens nothing.
[[nodiscard]] sql::connection_source open(const std::string& url, options options = {});

/// The caller's own handle, borrowed: never closed, its busy handler, progress handler and pragmas
/// untouched. A call waits up to the deadline for a lock of another connection, unless this one is
/// in a transaction that has begun to read or write: then it throws errc::timed_out as soon as the
/// handle's own busy handler gives up. A running statement is not interrupted. The handle must
/// outlive this object, must not be used by others during a call, and must not cross fork().
class connection_ref final : public sql::connection {
public:
    /// Reads and writes nothing.
    explicit connection_ref(sqlite3* handle);
    ~connection_ref() override;

    [[nodiscard]] sql::dialect speaks() const noexcept override { return sql::dialect::sqlite; }
    sql::result execute(const sql::statement& what, std::span<const sql::value> parameters,
                        sql::deadline until) override;
    sql::result query(std::string_view text, sql::deadline until) override;
    [[nodiscard]] bool alive() const noexcept override;
    [[nodiscard]] sql::transaction_state transaction() const noexcept override;
    /// From the first listen() on, three open descriptors watch the file; the handle runs `PRAGMA
    /// data_version`, outside of rollback mode.
    [[nodiscard]] sql::notifications* notifications() noexcept override;
    [[nodiscard]] std::uint64_t round_trips() const noexcept override;

private:
    class session;
    std::unique_ptr<session> session_;
};

}  // namespace rowlock::sqlite

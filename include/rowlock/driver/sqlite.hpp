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
/// fork(): SQLite cannot use a file in a child that its parent had open. Connections throw
/// errc::wrong_process there and are not closed by it, and so does connecting anew to a file that a
/// connection of ours had open at the fork. Fork first, or start another program.
///
/// Do not open and close the file by other means (such as to copy it) in a process that uses it: as
/// POSIX has it, that drops all its locks.
namespace rowlock::sqlite {

struct options {
    /// Makes the file, with mode 0600, if there is none. Otherwise a missing file is an error.
    bool create = true;
    /// Replaces the database's clock, for tests: microseconds since the epoch. Registered as the
    /// SQL function rowlock_testing_now().
    std::function<std::int64_t()> testing_clock = {};
};

/// A source of connections of our own, in WAL mode with synchronous=FULL: a grant survives a power
/// cut. Deadlines are kept for locks and for statements, at any instruction; what is being written
/// to the disk is not interrupted. A file that is moved or deleted while it is open is noticed with
/// the next call (errc::database_unreachable).
/// @param url `sqlite:relative/path` (to the working folder of this moment),
/// `sqlite:/absolute/path` or `sqlite:///absolute/path`, percent-decoded, with
/// `?synchronous=normal` for faster grants that a power cut (not a crash) may undo, and
/// `?create=false`. `sqlite::memory:` is refused: nobody else could see such a lock. So are network
/// file systems when connecting (errc::unsupported).
/// @throws error errc::invalid_url. Opens nothing.
[[nodiscard]] sql::connection_source open(const std::string& url, options options = {});

/// The caller's own handle, borrowed: never closed, its busy handler, progress handler and pragmas
/// untouched. Where another connection holds a lock it is waited for up to the deadline, unless
/// this one is in a transaction that has begun to read or write: then errc::timed_out comes as soon
/// as the handle's own busy handler has given up. A running statement is not interrupted. The
/// handle must outlive this object, must not be used by others during a call, and must not cross
/// fork().
class connection_ref final : public sql::connection {
public:
    explicit connection_ref(sqlite3* handle);
    ~connection_ref() override;

    [[nodiscard]] sql::dialect speaks() const noexcept override { return sql::dialect::sqlite; }
    sql::result execute(const sql::statement& what, std::span<const sql::value> parameters,
                        sql::deadline until) override;
    sql::result query(std::string_view text, sql::deadline until) override;
    [[nodiscard]] bool alive() const noexcept override;
    [[nodiscard]] sql::transaction_state transaction() const noexcept override;
    /// From the first listen() on, three descriptors are open that watch the file; the handle is
    /// asked for `PRAGMA data_version`, outside of rollback mode.
    [[nodiscard]] sql::notifications* notifications() noexcept override;
    [[nodiscard]] std::uint64_t round_trips() const noexcept override;

private:
    class session;
    std::unique_ptr<session> session_;
};

}  // namespace rowlock::sqlite

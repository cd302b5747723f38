#pragma once

#include "support/lock_database.hpp"

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// A client in another language, as docs/protocol.md describes it: it knows that page and the files
/// in docs/protocol, and none of the library's statements and protocols. It has no threads: the
/// test makes each of its steps, so that every interleaving is the test's own.
namespace support::foreign {

/// A file of docs/protocol.
[[nodiscard]] std::string published(const std::string& file);

/// The statements of docs/protocol for one database, on tables with this prefix.
class statements {
public:
    statements(rowlock::sql::dialect speaks, std::string prefix);

    /// With the fragments and the prefix filled in.
    [[nodiscard]] std::string text(std::string_view name) const;
    [[nodiscard]] std::string fill_in(std::string text) const;
    [[nodiscard]] std::vector<std::string> names() const;
    /// Replaces a part of a statement, for a control.
    /// @throws std::invalid_argument if the part is not there exactly once
    void replace(std::string_view name, std::string_view part, std::string_view by);

private:
    std::string prefix_;
    std::map<std::string, std::string, std::less<>> statements_, fragments_;
};

/// The identity of a MySQL or MariaDB server by the rows of `facts`; nullopt: a cluster, which this
/// client refuses.
[[nodiscard]] std::optional<std::string> identity_of(
    const std::map<std::string, std::string>& facts);

/// The words with their proof.
[[nodiscard]] std::string proved(const std::string& words, const std::string& secret);
[[nodiscard]] std::string grant_message(std::int64_t grant_id, std::int64_t token,
                                        const std::string& secret);
/// The name of a datagram socket, with its leading zero byte.
[[nodiscard]] std::string datagram_name(std::int64_t wake_address);
/// Sends a datagram there. False if no socket has that name.
bool post(std::int64_t wake_address, const std::string& message);

struct wake_address {
    std::int64_t number = 0;
    std::string secret{};
    std::optional<std::int64_t> mailbox{};
};

class client {
public:
    struct grant {
        std::int64_t session = 0, grant_id = 0, token = 0;
        wake_address to{};
    };

    /// Checks the schema, and opens a session with a random id.
    /// @throws std::runtime_error where the page says that a client must refuse
    explicit client(lock_database& database,
                    std::chrono::microseconds ttl = std::chrono::minutes{10});

    [[nodiscard]] std::int64_t session() const noexcept { return session_; }
    [[nodiscard]] const std::string& server() const noexcept { return server_; }
    [[nodiscard]] statements& sql() noexcept { return sql_; }
    [[nodiscard]] rowlock::sql::connection& db() noexcept { return *db_; }

    /// Runs a statement of the page.
    rowlock::sql::result run(std::string_view name,
                             std::initializer_list<rowlock::sql::value> parameters);
    /// How many rows it changed; 0 if the name is taken.
    std::int64_t change(std::string_view name,
                        std::initializer_list<rowlock::sql::value> parameters);
    void begin();
    void commit();
    void roll_back();

    bool heartbeat(std::int64_t revision = 0);
    bool lives();

    /// What `probe` reads.
    struct probed {
        std::int64_t next_token;
        bool lives, present;
        std::int64_t token;
        bool free, waited;
        std::int64_t holder;
        bool expired, semaphore;
    };
    probed probe(const std::string& name);
    /// Takes what the probe saw.
    bool take(const std::string& name, std::int64_t grant_id, const probed& seen);
    /// The token; nullopt: it is busy.
    /// @throws std::runtime_error if the name is a semaphore's
    std::optional<std::int64_t> try_acquire(const std::string& name, std::int64_t grant_id);

    void enqueue(const std::string& name, std::int64_t grant_id);
    /// One poll of a queue entry: serves the queue if the lock is free.
    /// @return the token once the entry was served
    /// @throws std::runtime_error if the name has become a semaphore's; the entry is deleted
    std::optional<std::int64_t> poll(const std::string& name, std::int64_t grant_id);
    /// False: it was served before, or is gone.
    bool cancel(const std::string& name, std::int64_t grant_id);

    /// Releases, and serves the first waiter in a second step, or wakes its client to do so. False:
    /// it was not this grant.
    bool release(const std::string& name, std::int64_t grant_id);
    /// Whom it served; or with the token 0 the first waiter of a free lock, if that asks for
    /// several locks or for a part of this one: its client takes that itself.
    std::optional<grant> grant_next(const std::string& name);
    /// Tells a waiter through the database. True if this database can.
    bool wake(const grant& served);

    /// Within begin() and commit().
    bool fence(const std::string& name, std::int64_t token);

private:
    void set_up();
    void check_schema();
    [[nodiscard]] std::string ask_server();
    [[nodiscard]] const rowlock::sql::statement& prepared(std::string_view name);
    rowlock::sql::result run(std::string_view name, const std::vector<rowlock::sql::value>& with);

    rowlock::sql::dialect speaks_;
    statements sql_;
    std::map<std::string, rowlock::sql::statement> prepared_;
    std::unique_ptr<rowlock::sql::connection> db_;
    std::int64_t session_ = 0;
    std::string server_;
};

}  // namespace support::foreign

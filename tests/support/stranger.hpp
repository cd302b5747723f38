#pragma once

#include "support/hints.hpp"
#include "support/lock_database.hpp"
#include <rowlock/sql/connection.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace support {

/// A local user, and a role of the server with no right on any table, who know every name and
/// number that there is, but for what stands in rows that they cannot read: another uid than ours
/// where we are root, and a role that may only connect.
class stranger {
public:
    explicit stranger(lock_database& database);
    stranger(const stranger&) = delete;
    stranger& operator=(const stranger&) = delete;
    ~stranger();

    /// Hears from now on what is said to a session (PostgreSQL).
    void listen(const rowlock::strategy::wake_address& to);
    /// What was said there since then, by now.
    [[nodiscard]] std::vector<std::string> heard();
    /// Whether a table of ours can be read.
    [[nodiscard]] bool reads_our_tables();

    /// Says this to a session in every way there is: by NOTIFY (PostgreSQL) and by datagrams, so
    /// many times. Returns when the datagrams were taken out of the mailbox. False if there was
    /// nothing to say it by.
    bool say(const rowlock::strategy::wake_address& to, const std::vector<std::string>& texts,
             int times = 1);

private:
    lock_database& database_;
    std::string role_;
    std::unique_ptr<rowlock::sql::connection> db_;
};

/// Everything that one without the secret can say of a grant whose id and next token it knows, as
/// told to such a session: words without a proof, with guesses, and with the proofs of other words.
[[nodiscard]] std::vector<std::string> lies(const rowlock::strategy::said_grant& of,
                                            const std::vector<std::string>& overheard = {});

}  // namespace support

#pragma once

#include "support/hints.hpp"
#include "support/lock_database.hpp"
#include <rowlock/sql/connection.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace support {

/// A local user, and a role of the server without rights on any table, which know every name and
/// number except those in rows that they cannot read: another uid if this process is root's, and a
/// role that may only connect.
class stranger {
public:
    explicit stranger(lock_database& database);
    stranger(const stranger&) = delete;
    stranger& operator=(const stranger&) = delete;
    ~stranger();

    /// Listens to the notifications of a session (PostgreSQL).
    void listen(const rowlock::wakeup::wake_address& to);
    /// The notifications since then.
    [[nodiscard]] std::vector<std::string> heard();
    /// Whether the role can read one of rowlock's tables.
    [[nodiscard]] bool reads_our_tables();

    /// Sends the texts to a session in every way, by NOTIFY (PostgreSQL) and by datagrams, `times`
    /// times. Returns once the datagrams were taken out of the mailbox. False if there was no way.
    bool say(const rowlock::wakeup::wake_address& to, const std::vector<std::string>& texts,
             int times = 1);

private:
    lock_database& database_;
    std::string role_;
    std::unique_ptr<rowlock::sql::connection> db_;
};

/// All wake-ups that a program without the secret can forge for a grant whose id and next token it
/// knows: without a proof, with guessed proofs, and with the proofs of other wake-ups.
[[nodiscard]] std::vector<std::string> lies(const rowlock::wakeup::announced_grant& of,
                                            const std::vector<std::string>& overheard = {});

}  // namespace support

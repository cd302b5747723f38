#pragma once

#include "lock/wakeup/hint.hpp"
#include "lock/wakeup/mailbox.hpp"
#include "support/lock_database.hpp"

#include <cstdint>
#include <string>

namespace support {

/// The wake-up address of a session, as a reader of rowlock's tables knows it.
inline rowlock::wakeup::wake_address address_of(lock_database& database,
                                                rowlock::session_id session) {
    const auto row =
        database.run("select wake_address, wake_secret, mailbox from rowlock_session where id = " +
                     to_string(session));
    return {.number = row.integer(0, 0),
            .secret = std::string{row.text(0, 1)},
            .mailbox = row.maybe_integer(0, 2)};
}

/// Whether the session with this address listens, on PostgreSQL. Its LISTEN has a connection of its
/// own, which a busy server makes late; until then the client polls more often.
inline bool listens(lock_database& database, const rowlock::wakeup::wake_address& at) {
    return database.number(
               "select count(*) from pg_stat_activity where state = 'idle' and query like "
               "'listen \"" +
               rowlock::wakeup::notification_channel(at) + "\"%'") > 0;
}

inline rowlock::wakeup::mailbox_sender mailbox_sender(const rowlock::wakeup::wake_address& to) {
    return rowlock::wakeup::mailbox_sender{to.number, to.mailbox};
}

}  // namespace support

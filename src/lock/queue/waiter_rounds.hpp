#pragma once

#include "lock/queue/entry_canceller.hpp"
#include "lock/queue/entry_poller.hpp"
#include "lock/queue/grant_verifier.hpp"
#include "lock/queue/loop_connection.hpp"
#include "lock/queue/loop_parts.hpp"
#include "lock/queue/queue_server.hpp"
#include "lock/wakeup/mailbox_reader.hpp"
#include "lock/wakeup/wakeup_source.hpp"
#include <rowlock/error.hpp>
#include <rowlock/ids.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <string_view>

namespace rowlock::detail {

/// One round of the waiters' loop: listens, and does what is due in the order in which it lets
/// threads run. The loop's thread calls it, except where stated.
///
/// No lock is held over a round trip. A task stays on its list until it is done: a statement that
/// failed is sent again.
class waiter_rounds final : public wakeup::listener {
public:
    /// @param wake_loop makes the next round due
    /// @param stopping when true, the rest of a round is left
    waiter_rounds(const loop_parts& parts, std::function<void()> wake_loop,
                  const std::atomic<bool>& stopping);
    ~waiter_rounds() override;

    /// Does what is due: no round trip if nothing is.
    /// @throws error what failed is still to be done
    void run();
    /// When the next round is due; 0 if at once.
    [[nodiscard]] nanoseconds next_due() const noexcept;
    /// Reads what wakes the client, also what arrived while statements ran. Needs no connection.
    void read_wakeups();
    /// Reads the mailbox of the current session from now on, whether or not a thread waits.
    void attend_current();
    /// After a failure: the connection is closed if it is of no use any more. The loop polls
    /// when it has another one.
    void drop_broken_connection(const error& failure) noexcept;
    /// Another call found the shared connection broken, or replaced it: no notification arrives
    /// there any more, and after the LISTEN on the next one a poll is needed.
    void leave_dead_connection();

    /// What the loop's sleep ends for: descriptors to be polled, and when to read again.
    [[nodiscard]] int source_descriptor() const noexcept { return source_->descriptor(); }
    [[nodiscard]] int mailbox_descriptor() const noexcept { return mail_.descriptor(parts_.now()); }
    [[nodiscard]] nanoseconds mail_due() const noexcept { return mail_.due(parts_.now()); }

    /// After the loop's thread has ended: no sleep in the server goes on, no connection is left.
    void close() noexcept;

    // Any thread:
    [[nodiscard]] grant_verifier& verifier() noexcept { return verifier_; }
    /// How long a waiter in a queue that moves waits for its first poll. A wake-up that told of the
    /// latest grant of the name most likely tells of the next one, too.
    [[nodiscard]] nanoseconds first_poll_after(const waiter& which) const noexcept;
    /// Whether a thread waits, and wakeup_source::listen() is to be called for it.
    [[nodiscard]] bool must_listen() const noexcept;
    [[nodiscard]] std::size_t connections() const noexcept;

private:
    bool on_message(std::string_view message, bool by_database) override;
    void on_commit() override { poller_.committed(); }
    void on_sleep(bool again) override;
    void on_woken() noexcept override;
    void on_doubt() noexcept override;
    void on_broken() noexcept override { parts_.connections.broke(); }

    void connect();
    void disconnect() noexcept;
    void attend(std::shared_ptr<session> ours);

    const loop_parts& parts_;
    const std::function<void()> wake_loop_;
    const std::atomic<bool>& stopping_;
    wakeup::mailbox_reader mail_;
    std::shared_ptr<session> attended_;  ///< the session whose mailbox is read
    wakeup::recipient current_;          ///< the same
    loop_connection link_;
    std::unique_ptr<wakeup::wakeup_source> source_;  ///< never null
    grant_verifier verifier_{parts_, link_, *source_};
    entry_canceller canceller_{parts_, link_, verifier_};
    queue_server server_{parts_, link_};
    entry_poller poller_{parts_, link_, verifier_, *source_};
};

}  // namespace rowlock::detail

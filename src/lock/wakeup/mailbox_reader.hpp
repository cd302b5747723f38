#pragma once

#include "lock/wakeup/wakeup_source.hpp"

#include <chrono>

namespace rowlock::wakeup {

/// Reads the mailbox of the client's session. Needs no database: works also while the database is
/// away. After a flood of messages of no use it leaves the mailbox unread for a moment. Used by one
/// thread; reads no clock.
class mailbox_reader {
public:
    /// Reads the mailbox of this session from now on.
    void attend(std::shared_ptr<const mailbox> box) noexcept;
    void read(listener& to, nanoseconds now);
    /// To be polled, not read; -1 if there is none, or it is left unread now.
    [[nodiscard]] int descriptor(nanoseconds now) const noexcept;
    /// When it is read again though no message comes; never if that is not so.
    [[nodiscard]] nanoseconds due(nanoseconds now) const noexcept;

private:
    std::shared_ptr<const mailbox> box_;
    nanoseconds unread_until_{0};  ///< after a flood
};

}  // namespace rowlock::wakeup

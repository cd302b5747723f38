#include "lock/wakeup/mailbox_reader.hpp"

#include "base/clock.hpp"

namespace rowlock::wakeup {

void mailbox_reader::attend(std::shared_ptr<const mailbox> box) noexcept {
    box_ = std::move(box);
    unread_until_ = {};
}

void mailbox_reader::read(listener& to, nanoseconds now) {
    if (!box_ || now < unread_until_) return;
    const auto arrived = box_->take();
    bool useful = false;
    for (const auto& text : arrived) useful = to.on_message(text, false) || useful;
    if (!useful && arrived.size() >= mailbox::flood) unread_until_ = now + mailbox::rest_from_flood;
}

int mailbox_reader::descriptor(nanoseconds now) const noexcept {
    return box_ && now >= unread_until_ ? box_->descriptor() : -1;
}

nanoseconds mailbox_reader::due(nanoseconds now) const noexcept {
    return box_ && now < unread_until_ ? unread_until_ : base::alarm::never;
}

}  // namespace rowlock::wakeup

// Stands for src/lock/wakeup/mailbox.cpp: mailboxes without sockets. A datagram may be
// lost, late and overtaken; a full mailbox refuses it; nodes of another host are out of reach.

#include "mailbox.hpp"

#include "lock/wakeup/mailbox.hpp"
#include "pollable.hpp"
#include "scheduler.hpp"
#include <rowlock/error.hpp>

#include <map>
#include <utility>

namespace rowlock::sim {
namespace {

constexpr std::size_t most_unread = 11;  // net.unix.max_dgram_qlen, and one
constexpr std::size_t longest_text = 128;

/// The descriptors of the open mailboxes, by their numbers.
std::map<i64, int>& mailboxes() {
    static std::map<i64, int> all;
    return all;
}

bool is_open(const pollable& box, int descriptor) {
    const auto found = mailboxes().find(box.mailbox);
    return found != mailboxes().end() && found->second == descriptor;
}

}  // namespace

mail_weather mail;

void close_mailboxes(int node_id) {
    std::erase_if(mailboxes(), [&](const auto& entry) {
        const auto* const box = find_pollable(entry.second);
        return node_id < 0 || box == nullptr || box->owner == node_id;
    });
}

void start_anew() {
    mail = {};
    forget_pollables();
    close_mailboxes(-1);
}

}  // namespace rowlock::sim

namespace rowlock::wakeup {

using sim::mailboxes;
using sim::world;

std::optional<std::int64_t> network_namespace() noexcept {
    if (world == nullptr) return std::nullopt;
    return 1'000 + world->here().host;
}

mailbox::mailbox(std::int64_t number) : socket_{sim::new_pollable()} {
    if (mailboxes().contains(number)) {
        throw error{errc::unsupported, "no mailbox for wake-ups: the number is taken"};
    }
    auto* const box = sim::find_pollable(socket_);
    box->owner = world->here().id;
    box->mailbox = number;
    mailboxes()[number] = socket_;
}

mailbox::~mailbox() {
    if (const auto* const box = sim::find_pollable(socket_)) mailboxes().erase(box->mailbox);
}

std::vector<std::string> mailbox::take() const {
    auto* const box = sim::find_pollable(socket_);
    box->readable = false;
    return std::exchange(box->datagrams, {});
}

mailbox_sender::mailbox_sender(std::int64_t number, std::optional<std::int64_t> in) noexcept {
    if (!in || in != network_namespace()) return;
    const auto found = mailboxes().find(number);
    if (found != mailboxes().end()) socket_ = found->second;
}

mailbox_sender::mailbox_sender(mailbox_sender&& other) noexcept
    : socket_{std::exchange(other.socket_, -1)} {}

mailbox_sender::~mailbox_sender() = default;

bool mailbox_sender::post(std::string_view text) const noexcept {
    const auto* const box = sim::find_pollable(socket_);
    if (box == nullptr || text.empty() || text.size() > sim::longest_text) return false;
    if (!sim::is_open(*box, socket_) || box->datagrams.size() >= sim::most_unread) return false;
    world->give_way_at(world->how.switch_at_lock);
    if (world->draws.chance(sim::mail.lost)) return true;
    world->after(world->draws.between(sim::mail.shortest, sim::mail.longest),
                 [descriptor = socket_, datagram = std::string{text}] {
                     auto* const to = sim::find_pollable(descriptor);
                     if (to == nullptr) return;
                     to->datagrams.push_back(datagram);
                     to->readable = true;
                     world->wake_all(to);
                 });
    return true;
}

}  // namespace rowlock::wakeup

#include "driver/sqlite_mailbox.hpp"

#include <rowlock/error.hpp>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <system_error>

namespace rowlock::sqlite {
namespace {

constexpr std::size_t longest_text = 128;
// A flood by somebody whose mail is dropped must not keep the reader here.
constexpr int most_reads = 64;

struct address {
    sockaddr_un name{};
    socklen_t size = 0;
};

// Nothing if the name would be cut, and then perhaps be another's.
std::optional<address> address_of(const struct stat& file, std::string_view channel) noexcept {
    address made;
    made.name.sun_family = AF_UNIX;
    // The first byte stays zero: no file.
    auto* const text = made.name.sun_path + 1;
    constexpr std::size_t room = sizeof made.name.sun_path - 1;
    const int written = std::snprintf(
        text, room, "rowlock/%jx:%jx/%.*s", static_cast<std::uintmax_t>(file.st_dev),
        static_cast<std::uintmax_t>(file.st_ino), static_cast<int>(channel.size()), channel.data());
    if (written < 0 || static_cast<std::size_t>(written) >= room) return std::nullopt;
    made.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                       static_cast<std::size_t>(written));
    return made;
}

int datagram_socket() noexcept {
    return ::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

// -1: the kernel did not tell, so it is nobody whom we trust.
uid_t sender_of(msghdr& message) noexcept {
    for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
         part = CMSG_NXTHDR(&message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_CREDENTIALS) continue;
        ucred who{};
        std::memcpy(&who, CMSG_DATA(part), sizeof who);
        return who.uid;
    }
    return static_cast<uid_t>(-1);
}

}  // namespace

mailbox::mailbox(const struct stat& file, std::string_view channel)
    : channel_{channel}, owner_{file.st_uid} {
    const auto where = address_of(file, channel);
    int number = ENAMETOOLONG;
    if (where) {
        socket_ = datagram_socket();
        const int yes = 1;
        // Credentials first: nothing may come in without them.
        if (socket_ >= 0 && ::setsockopt(socket_, SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes) == 0 &&
            ::bind(socket_, reinterpret_cast<const sockaddr*>(&where->name), where->size) == 0) {
            return;
        }
        number = errno;
    }
    if (socket_ >= 0) ::close(socket_);
    throw error{errc::unsupported,
                "no mailbox for wake-ups: " + std::generic_category().message(number)};
}

mailbox::~mailbox() {
    ::close(socket_);
}

std::vector<std::string> mailbox::take() const {
    std::vector<std::string> arrived;
    for (int reads = 0; reads < most_reads; ++reads) {
        std::array<char, longest_text> text{};
        alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred))> control{};
        iovec part{text.data(), text.size()};
        msghdr message{};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        const auto size = ::recvmsg(socket_, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (size < 0 && errno != EINTR) break;
        if (size <= 0 || (message.msg_flags & MSG_TRUNC) != 0) continue;
        if (!trusts(sender_of(message))) continue;
        arrived.emplace_back(text.data(), static_cast<std::size_t>(size));
    }
    return arrived;
}

bool mailbox::trusts(uid_t sender) const noexcept {
    return sender == ::geteuid() || sender == 0 || sender == owner_;
}

bool post(const struct stat& file, std::string_view channel, std::string_view text) noexcept {
    const auto where = address_of(file, channel);
    if (!where || text.empty() || text.size() > longest_text) return false;
    const int out = datagram_socket();
    if (out < 0) return false;
    const auto sent = ::sendto(out, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                               reinterpret_cast<const sockaddr*>(&where->name), where->size);
    ::close(out);
    return sent == static_cast<ssize_t>(text.size());
}

}  // namespace rowlock::sqlite

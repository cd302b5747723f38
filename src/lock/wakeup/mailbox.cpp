#include "lock/wakeup/mailbox.hpp"

#include "base/sha256.hpp"
#include <rowlock/error.hpp>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <system_error>
#include <utility>

namespace rowlock::wakeup {
namespace {

constexpr std::size_t longest_text = 128;
// A flood must not keep the reader here.
constexpr int most_reads = 64;

struct address {
    sockaddr_un name{};
    socklen_t size = 0;

    explicit address(std::int64_t number) noexcept {
        name.sun_family = AF_UNIX;
        // The first byte stays zero: no file.
        auto* const text = name.sun_path + 1;
        const int written = std::snprintf(text, sizeof name.sun_path - 1, "rowlock/%lld",
                                          static_cast<long long>(number));
        size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                      static_cast<std::size_t>(std::max(written, 0)));
    }
    [[nodiscard]] const sockaddr* get() const noexcept {
        return reinterpret_cast<const sockaddr*>(&name);
    }
};

int datagram_socket() noexcept {
    return ::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

std::string boot_id() {
    std::array<char, 64> text{};
    const int file = ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (file < 0) return {};
    const auto size = ::read(file, text.data(), text.size());
    ::close(file);
    return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
}

/// Identified by its inode, which no other namespace of this kernel has while this one lives, and
/// by the boot.
std::optional<std::int64_t> find_network_namespace() {
    struct stat seen {};
    const std::string boot = boot_id();
    if (boot.empty() || ::stat("/proc/thread-self/ns/net", &seen) != 0) return std::nullopt;
    const auto digest =
        sha256(boot + std::to_string(seen.st_dev) + ':' + std::to_string(seen.st_ino));
    std::uint64_t number = 0;
    for (std::size_t i = 0; i < 8; ++i) number = number << 8 | digest[i];
    return static_cast<std::int64_t>(number >> 1);
}

}  // namespace

std::optional<std::int64_t> network_namespace() noexcept {
    try {
        static const auto found = find_network_namespace();
        return found;
    } catch (...) {
        return std::nullopt;  // no memory
    }
}

mailbox::mailbox(std::int64_t number) : socket_{datagram_socket()} {
    const address where{number};
    if (socket_ >= 0 && ::bind(socket_, where.get(), where.size) == 0) return;
    const int why = errno;
    if (socket_ >= 0) ::close(socket_);
    throw error{errc::unsupported,
                "no mailbox for wake-ups: " + std::generic_category().message(why)};
}

mailbox::~mailbox() {
    ::close(socket_);
}

std::vector<std::string> mailbox::take() const {
    std::vector<std::string> arrived;
    for (int reads = 0; reads < most_reads; ++reads) {
        std::array<char, longest_text + 1> text{};
        const auto size = ::recv(socket_, text.data(), text.size(), MSG_DONTWAIT);
        if (size < 0 && errno != EINTR) break;
        if (size <= 0 || static_cast<std::size_t>(size) > longest_text) continue;
        arrived.emplace_back(text.data(), static_cast<std::size_t>(size));
    }
    return arrived;
}

mailbox_sender::mailbox_sender(std::int64_t number, std::optional<std::int64_t> in) noexcept {
    if (!in || in != network_namespace()) return;
    socket_ = datagram_socket();
    const address where{number};
    if (socket_ < 0 || ::connect(socket_, where.get(), where.size) == 0) return;
    ::close(std::exchange(socket_, -1));
}

mailbox_sender::mailbox_sender(mailbox_sender&& other) noexcept
    : socket_{std::exchange(other.socket_, -1)} {}

mailbox_sender::~mailbox_sender() {
    if (socket_ >= 0) ::close(socket_);
}

bool mailbox_sender::post(std::string_view text) const noexcept {
    if (socket_ < 0 || text.empty() || text.size() > longest_text) return false;
    const auto sent = ::send(socket_, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    return sent == static_cast<ssize_t>(text.size());
}

}  // namespace rowlock::wakeup

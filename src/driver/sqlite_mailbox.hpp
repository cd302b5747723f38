#pragma once

#include <sys/stat.h>

#include <string>
#include <string_view>
#include <vector>

namespace rowlock::sqlite {

/// Where one who waits is told by name. A commit to a file wakes all who watch it, or nobody; who
/// writes a grant knows for whom it is.
///
/// A datagram socket in the abstract namespace of Linux: it is no file, so nothing is left behind
/// by a crash, and it needs no folder that may be written. It is named after the file's device and
/// inode and the channel. It is reached from the same network namespace only; what is said
/// elsewhere is lost. What comes is a hint: any process of this user, of the file's owner or of
/// root may send it. What others send is dropped.
class mailbox {
public:
    /// Opens one descriptor.
    /// @throws error errc::unsupported if there is none left, or another has this name
    mailbox(const struct stat& file, std::string_view channel);
    mailbox(const mailbox&) = delete;
    mailbox& operator=(const mailbox&) = delete;
    ~mailbox();

    [[nodiscard]] int descriptor() const noexcept { return socket_; }
    [[nodiscard]] std::string_view channel() const noexcept { return channel_; }
    /// What has arrived, some dozens at most. Never waits.
    [[nodiscard]] std::vector<std::string> take() const;

private:
    [[nodiscard]] bool trusts(uid_t sender) const noexcept;

    std::string channel_;
    uid_t owner_;  ///< of the file
    int socket_ = -1;
};

/// Says `text` to whoever has the mailbox of that file and channel. Never waits. False if there is
/// nobody to be reached from here, or his box is full.
bool post(const struct stat& file, std::string_view channel, std::string_view text) noexcept;

}  // namespace rowlock::sqlite

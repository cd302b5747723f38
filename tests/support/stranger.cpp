#include "support/stranger.hpp"

#include "support/servers.hpp"
#include <rowlock/open.hpp>
#include <rowlock/sql/notifications.hpp>

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>

namespace support {

using namespace rowlock;

namespace {

constexpr uid_t nobodys_id = 65534;

/// Posts from another process, as another user where that is possible. Waits until the reader has
/// taken all datagrams. Returns whether there was a mailbox.
bool post(const std::string& name, const std::vector<std::string>& texts, int times) {
    const auto child = ::fork();
    if (child == 0) {
        if (::geteuid() == 0 && (::setgid(nobodys_id) != 0 || ::setuid(nobodys_id) != 0))
            ::_exit(2);
        sockaddr_un where{};
        where.sun_family = AF_UNIX;
        std::memcpy(where.sun_path + 1, name.data(), name.size());
        const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
        const int way = ::socket(AF_UNIX, SOCK_DGRAM, 0);
        if (::connect(way, reinterpret_cast<const sockaddr*>(&where), size) != 0) ::_exit(1);
        const timeval patience{5, 0};
        ::setsockopt(way, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        for (int i = 0; i < times; ++i) {
            for (const auto& text : texts) {
                if (::send(way, text.data(), text.size(), MSG_NOSIGNAL) < 0) ::_exit(1);
            }
        }
        for (int unread = 1, looks = 0; unread > 0 && looks < 5000; ++looks) {
            if (::ioctl(way, SIOCOUTQ, &unread) != 0) ::_exit(2);
            ::usleep(1000);
        }
        ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return status == 0;
}

/// The URL of the stranger's role on the same server.
std::string url_as(const std::string& url, const std::string& role) {
    auto other = url;
    const auto user = other.find("://") + 3;
    return other.replace(user, other.find('@') - user, role + ":of-the-test");
}

}  // namespace

stranger::stranger(lock_database& database) : database_{database} {
    if (database.speaks() != sql::dialect::postgresql) return;
    static std::atomic<int> count{0};
    role_ = database.prefix() + "stranger" + std::to_string(++count);
    database.run("create role " + role_ + " login password 'of-the-test'");
    db_ = open(url_as(database.url(), role_)).connect(soon());
}

stranger::~stranger() {
    db_.reset();
    if (!role_.empty()) database_.run("drop role " + role_);
}

void stranger::listen(const wakeup::wake_address& to) {
    db_->notifications()->listen(wakeup::notification_channel(to), soon());
}

std::vector<std::string> stranger::heard() {
    std::vector<std::string> all;
    db_->query("select 1", soon());
    for (const auto& said : db_->notifications()->take()) all.push_back(said.payload);
    return all;
}

bool stranger::reads_our_tables() {
    try {
        db_->query("select * from " + database_.prefix() + "session", soon());
        return true;
    } catch (const error& failure) {
        if (failure.kind() != errc::access_denied) throw;
        return false;
    }
}

bool stranger::say(const wakeup::wake_address& to, const std::vector<std::string>& texts,
                   int times) {
    bool said = false;
    if (db_) {
        const sql::statement notify{"select pg_notify($1, $2)"};
        const auto channel = wakeup::notification_channel(to);
        for (int i = 0; i < times; ++i) {
            for (const auto& text : texts) {
                const std::array parameters{sql::value{channel}, sql::value{text}};
                db_->execute(notify, parameters, soon());
            }
        }
        said = true;
    }
    const auto mailbox = "rowlock/" + std::to_string(to.number);
    return (to.mailbox && post(mailbox, texts, times)) || said;
}

std::vector<std::string> lies(const wakeup::announced_grant& of,
                              const std::vector<std::string>& overheard) {
    const auto words = to_string(of.grant_id) + ' ' + std::to_string(of.token);
    const std::string zeros(32, '0');
    std::vector<std::string> all{words,
                                 words + " 0",
                                 words + " 1",
                                 words + " 0 ",
                                 words + " 0 " + zeros,
                                 wakeup::encode_wakeup(of, zeros),
                                 wakeup::encode_wakeup(of, to_string(of.grant_id)),
                                 wakeup::encode_wakeup(of, "")};
    for (const auto& said : overheard) {
        all.push_back(said);  // a replay
        if (said.size() <= 33) continue;
        const auto proof = said.substr(said.size() - 32);
        all.push_back(words + " 0 " + proof);
        all.push_back(words + " 1 " + proof);
        all.push_back(words + ' ' + said);
    }
    return all;
}

}  // namespace support

#include "support/haproxy.hpp"

#include "support/servers.hpp"

#include <signal.h>
#include <unistd.h>

#include <stdexcept>

namespace support {
namespace {

/// The position of `host:port` in a URL with a user.
struct place {
    std::size_t begin;
    std::size_t size;
};

place place_in(const std::string& url) {
    const auto begin = url.rfind('@') + 1;
    return {begin, url.find('/', begin) - begin};
}

std::string address_of(const std::string& url) {
    const auto at = place_in(url);
    return url.substr(at.begin, at.size);
}

std::string configuration(const std::string& first, const std::string& backup, std::uint16_t port,
                          std::chrono::milliseconds idle) {
    const std::string limit = std::to_string(idle.count()) + "ms\n";
    std::string text = "global\n maxconn 200\ndefaults\n mode tcp\n timeout connect 5s\n";
    text += " timeout client " + limit + " timeout server " + limit;
    text += "listen database\n bind 127.0.0.1:" + std::to_string(port) + "\n server first " + first;
    if (!backup.empty()) {
        text += " check inter 100ms fall 3\n server second " + backup + " check backup";
    }
    return text + "\n";
}

}  // namespace

std::unique_ptr<haproxy> haproxy::start(const std::string& url, std::chrono::milliseconds idle,
                                        const std::string& backup) {
    const std::string program = "/usr/sbin/haproxy";
    if (access(program.c_str(), X_OK) != 0) {
        miss_program("HAProxy", "haproxy");
        return nullptr;
    }
    std::unique_ptr<haproxy> made{new haproxy};
    for (int attempt = 0; attempt < 5; ++attempt) {
        const auto port = free_port();
        made->folder_.write(
            "haproxy.cfg",
            configuration(address_of(url), backup.empty() ? "" : address_of(backup), port, idle));
        made->process_ = std::make_unique<server_process>(
            std::vector<std::string>{program, "-db", "-f", made->folder_.path() + "/haproxy.cfg"},
            made->folder_, "haproxy.log", SIGTERM);
        made->url_ = url;
        const auto at = place_in(url);
        made->url_.replace(at.begin, at.size, "127.0.0.1:" + std::to_string(port));
        if (comes_up(*made->process_, made->url_)) return made;
        made->process_.reset();
    }
    throw std::runtime_error{"HAProxy did not start: " + made->folder_.read("haproxy.log")};
}

}  // namespace support

#include "support/this_process.hpp"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <charconv>
#include <filesystem>
#include <iterator>
#include <set>
#include <vector>

namespace support {
namespace {

// The local addresses of sockets with a peer, once for one with several descriptors.
std::vector<sockaddr_storage> connected() {
    std::vector<sockaddr_storage> found;
    std::set<ino_t> seen;
    for (const auto& each : std::filesystem::directory_iterator{"/proc/self/fd"}) {
        const auto name = each.path().filename().string();
        int descriptor = -1;
        std::from_chars(name.data(), name.data() + name.size(), descriptor);
        sockaddr_storage address{};
        socklen_t size = sizeof address;
        if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&address), &size) != 0) continue;
        struct stat file = {};
        if (::fstat(descriptor, &file) != 0 || !seen.insert(file.st_ino).second) continue;
        size = sizeof address;
        address = {};
        if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size) != 0) continue;
        found.push_back(address);
    }
    return found;
}

int port_of(const sockaddr_storage& address) {
    if (address.ss_family == AF_INET) {
        return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
    }
    if (address.ss_family == AF_INET6) {
        return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
    }
    return 0;
}

}  // namespace

int threads_of_this_process() {
    const std::filesystem::directory_iterator all{"/proc/self/task"};
    return static_cast<int>(std::distance(begin(all), end(all)));
}

int connections_of_this_process() {
    return static_cast<int>(connected().size());
}

std::string ports_of_this_process() {
    std::string list = "(0";  // an unused port; the list must not be empty
    for (const auto& each : connected()) {
        if (const int port = port_of(each); port != 0) list += ", " + std::to_string(port);
    }
    return list + ")";
}

}  // namespace support

#pragma once

#include <httplib.h>

#include <mutex>
#include <set>

namespace rowlock::cli::serving {

/// cpp-httplib's server, with limits that it lacks: a request must have arrived within a time and
/// in so many bytes, whatever it consists of; an answer must make progress; and all connections end
/// when it stops. One request a connection.
class http_server : public httplib::Server {
public:
    /// Ends all connections, now and from now on. Answers that are being computed are not waited
    /// for.
    void end_connections();

private:
    bool process_and_close_socket(socket_t socket) override;

    std::mutex mutex_;
    std::set<socket_t> open_;
    bool ending_ = false;
};

}  // namespace rowlock::cli::serving

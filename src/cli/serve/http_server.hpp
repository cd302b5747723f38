#pragma once

#include "cli/serve/connections.hpp"

#include <httplib.h>

#include <cstddef>

namespace rowlock::cli::serving {

/// cpp-httplib's server, with limits that it lacks: a request must have arrived within a time from
/// its connection on and in so many bytes, whatever it consists of; an answer must make progress;
/// clients that let the server wait leave their threads to others (see `connections`); and all
/// connections end when it stops. One request a connection.
class http_server : public httplib::Server {
public:
    /// @param threads that answer requests, one at a time each
    explicit http_server(std::size_t threads);

    /// Has the system keep more connections that are not accepted yet than the library asks for.
    /// To be called once it is bound.
    void listen_for_many() const;
    /// Ends all connections, now and from now on. Answers that are being computed are not waited
    /// for.
    void end_connections() { connections_.end_all(); }
    /// Whether the client whose request this thread answers has closed its side. For streams: a
    /// client that waits for an answer may have done so.
    [[nodiscard]] static bool client_has_left() noexcept;

private:
    class threads;
    bool process_and_close_socket(socket_t socket) override;
    void serve(const connections::pointer& one);

    connections connections_;
    threads* threads_ = nullptr;  ///< the library's, while it listens
};

}  // namespace rowlock::cli::serving

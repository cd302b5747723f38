#pragma once

#include <string>

namespace rowlock {

/// @addtogroup watching
/// @{

class client;

/// Measurements for Prometheus, and whatever reads its text format. docs/metrics.md lists them;
/// `rowlock metrics` prints those of the database.
namespace metrics {

/// The Content-Type of that text, for the HTTP server that returns it.
inline constexpr const char* content_type = "text/plain; version=0.0.4; charset=utf-8";

/// All metrics of a client in Prometheus' text format 0.0.4: what client::stats() returns, losses
/// by reason, and how long acquires and holds took. No label contains the name of a lock; see
/// client_options::metric_class. Thread-safe. No round trip.
/// @throws error errc::wrong_process
[[nodiscard]] std::string prometheus(const client& locks);

}  // namespace metrics

/// @}

}  // namespace rowlock

#include "tool/browser.hpp"

#include "support/servers.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <fstream>
#include <string_view>

namespace tool {
namespace {

using nlohmann::json;

bool is_installed(const std::string& program) {
    process which{{"sh", "-c", "command -v " + program}, {}};
    return which.wait() == 0;
}

std::string decoded(std::string_view base64) {
    constexpr std::string_view digits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string bytes;
    std::uint32_t bits = 0;
    int count = 0;
    for (const char each : base64) {
        const auto digit = digits.find(each);
        if (digit == std::string_view::npos) break;
        bits = bits << 6 | static_cast<std::uint32_t>(digit);
        count += 6;
        if (count < 8) continue;
        count -= 8;
        bytes += static_cast<char>(bits >> count & 0xFFu);
    }
    return bytes;
}

}  // namespace

std::shared_ptr<browser> browser::start() {
    static std::shared_ptr<browser> shared;
    if (shared && shared->renew()) return shared;
    shared.reset();
    if (!is_installed("chromium") || !is_installed("chromedriver")) {
        support::miss_program("chromedriver", "chromium-driver");
        return nullptr;
    }
    std::shared_ptr<browser> made{new browser};
    made->driver_ = std::make_unique<process>(arguments{"chromedriver", "--port=0"});
    const std::string mark = "started successfully on port ";
    REQUIRE(eventually([&] { return made->driver_->out().find(mark) != std::string::npos; }));
    const auto said = made->driver_->out();
    made->http_ = std::make_unique<httplib::Client>(
        "127.0.0.1", std::stoi(said.substr(said.find(mark) + mark.size())));
    made->http_->set_read_timeout(patience);
    const json options{
        {"args",
         {"--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
          "--hide-scrollbars", "--user-data-dir=" + (made->folder_ / "profile")}}};
    const json wanted{{"goog:chromeOptions", options}, {"goog:loggingPrefs", {{"browser", "ALL"}}}};
    const auto session = made->command("", {{"capabilities", {{"alwaysMatch", wanted}}}});
    made->session_ = "/" + session.at("sessionId").get<std::string>();
    shared = made;
    return made;
}

bool browser::renew() const {
    const json blank{{"url", "about:blank"}};
    const auto answer =
        http_->Post("/session" + session_ + "/url", blank.dump(), "application/json");
    if (!answer || answer->status != 200) return false;
    command("/goog/cdp/execute",
            {{"cmd", "Emulation.clearDeviceMetricsOverride"}, {"params", json::object()}});
    command("/goog/cdp/execute",
            {{"cmd", "Emulation.setEmulatedMedia"}, {"params", {{"features", json::array()}}}});
    static_cast<void>(complaints());
    return true;
}

browser::~browser() {
    if (http_ && !session_.empty()) http_->Delete("/session" + session_);
}

json browser::command(const std::string& what, const json& with) const {
    CAPTURE(what);
    const auto answer = http_->Post("/session" + session_ + what, with.dump(), "application/json");
    REQUIRE(answer);
    CAPTURE(answer->body);
    REQUIRE(answer->status == 200);
    return json::parse(answer->body).at("value");
}

void browser::open(const std::string& url) const {
    command("/url", {{"url", url}});
}

void browser::resize(int width, int height) const {
    command("/goog/cdp/execute", {{"cmd", "Emulation.setDeviceMetricsOverride"},
                                  {"params",
                                   {{"width", width},
                                    {"height", height},
                                    {"deviceScaleFactor", 1},
                                    {"mobile", width < 600}}}});
}

void browser::prefer(const std::string& colour_scheme) const {
    const json feature{{"name", "prefers-color-scheme"}, {"value", colour_scheme}};
    command("/goog/cdp/execute",
            {{"cmd", "Emulation.setEmulatedMedia"}, {"params", {{"features", {feature}}}}});
}

json browser::run(const std::string& script) const {
    return command("/execute/sync", {{"script", script}, {"args", json::array()}});
}

bool browser::becomes(const std::string& expression) const {
    return eventually([&] { return run("return Boolean(" + expression + ");") == true; });
}

std::string browser::element(const std::string& selector) const {
    const auto found = command("/element", {{"using", "css selector"}, {"value", selector}});
    return found.begin().value().get<std::string>();
}

void browser::click(const std::string& selector) const {
    command("/element/" + element(selector) + "/click", json::object());
}

void browser::type(const std::string& selector, const std::string& text) const {
    command("/element/" + element(selector) + "/value", {{"text", text}});
}

std::string browser::text() const {
    return run("return document.body.innerText;").get<std::string>();
}

bool browser::shows(const std::string& wanted) const {
    return eventually([&] { return text().find(wanted) != std::string::npos; });
}

bool browser::hides(const std::string& wanted) const {
    return eventually([&] { return text().find(wanted) == std::string::npos; });
}

json browser::complaints() const {
    json all = json::array();
    for (const auto& each : command("/se/log", {{"type", "browser"}})) {
        const auto& message = each.at("message").get_ref<const std::string&>();
        // The network's are those of servers that have gone.
        if (each.at("level") == "SEVERE" && message.find("net::ERR_") == std::string::npos) {
            all.push_back(message);
        }
    }
    return all;
}

void browser::save_picture(const std::string& file) const {
    const auto answer = http_->Get("/session" + session_ + "/screenshot");
    REQUIRE(answer);
    std::ofstream{file, std::ios::binary}
        << decoded(json::parse(answer->body).at("value").get<std::string>());
}

}  // namespace tool

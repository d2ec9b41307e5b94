#include "cost/device.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "support/error.h"

namespace autosp {
namespace {

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Unsupported& error) {
    return error.what();
  }
  return "";
}

TEST(Device, UnknownNamesGetTheListAndCalibrate) {
  EXPECT_EQ(find_device("h100").name, "h100");
  for (const std::string& text :
       {refusal([] { find_device("abacus"); }), refusal([] { device_for("abacus"); })}) {
    EXPECT_NE(text.find("\"abacus\""), std::string::npos) << text;
    EXPECT_NE(text.find("autosp.calibrate()"), std::string::npos) << text;
    for (const std::string& name : device_names()) {
      EXPECT_NE(text.find(name), std::string::npos) << name;
    }
  }
}

TEST(Device, TextReadsBackExactly) {
  for (const std::string& name : device_names()) {
    EXPECT_EQ(find_device(print(find_device(name))), find_device(name)) << name;
  }
  const Device measured{"my = GPU", 1.0 / 3, 2e12, 3e11, 4e11, 5e10, 0, 123, 456};
  EXPECT_EQ(find_device(print(measured)), measured);
}

TEST(Device, BadTextIsRefused) {
  const Device good{"x", 1, 1, 1, 1, 1, 1, 1, 1};
  const auto refused = [&](const auto& spoil) {
    Device bad = good;
    spoil(bad);
    return !refusal([&] { find_device(print(bad)); }).empty();
  };
  EXPECT_FALSE(refused([](Device&) {}));
  EXPECT_TRUE(refused([](Device& d) { d.flops_16bit = 0; }));
  EXPECT_TRUE(refused([](Device& d) { d.link_bytes_per_second = -1; }));
  EXPECT_TRUE(refused([](Device& d) { d.memory_bytes_per_second = 1e308 * 10; }));
  EXPECT_TRUE(refused([](Device& d) { d.launch_ns = -1; }));
  EXPECT_FALSE(refusal([&] { find_device(print(good).substr(3)); }).empty());
  EXPECT_FALSE(refusal([] { find_device("flops_16bit=1"); }).empty());
}

TEST(Device, TorchsNames) {
  EXPECT_EQ(device_for("NVIDIA A100-SXM4-80GB").name, "a100");
  EXPECT_EQ(device_for("NVIDIA H100 80GB HBM3").name, "h100");
  EXPECT_EQ(device_for("NVIDIA H200").name, "h200");
  EXPECT_EQ(device_for("AMD Instinct MI250X / MI250").name, "mi250");
  EXPECT_EQ(device_for("AMD Instinct MI300X").name, "mi300");
  EXPECT_EQ(device_for("cpu").name, "cpu");
  for (const char* other : {"NVIDIA GH200 480GB", "NVIDIA H1000", "NVIDIA RTX A1000", ""}) {
    EXPECT_FALSE(refusal([&] { device_for(other); }).empty()) << other;
  }
}

TEST(Device, OnlyTheHostsOwnProcessorHasNowhereToOffload) {
  for (const std::string& name : device_names()) {
    EXPECT_EQ(find_device(name).host_bytes_per_second == 0, name == "cpu") << name;
  }
}

}  // namespace
}  // namespace autosp

// Lets torch believe in one GPU without memory, for fake tensors only. Autograd asks the hooks and the
// guard for the device; without them a CPU build refuses tensors on "cuda", and a CUDA build on a
// machine without a GPU does, too.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::EventFlag;
using c10::Stream;

const Device THE_GPU(DeviceType::CUDA, 0);

struct Guard final : c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override { return DeviceType::CUDA; }
  Device exchangeDevice(Device) const override { return THE_GPU; }
  Device getDevice() const override { return THE_GPU; }
  void setDevice(Device) const override {}
  void uncheckedSetDevice(Device) const noexcept override {}
  Stream getStream(Device) const noexcept override { return Stream(Stream::DEFAULT, THE_GPU); }
  Stream getDefaultStream(Device device) const override { return getStream(device); }
  Stream getNewStream(Device device, int) const override { return getStream(device); }
  Stream exchangeStream(Stream stream) const noexcept override { return stream; }
  DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void**, const Stream&, const DeviceIndex, const EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const DeviceIndex) const noexcept override {}
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override {}
};

struct Hooks final : at::CUDAHooksInterface {
  explicit Hooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isAvailable() const override { return true; }
  bool isBuilt() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  bool isPinnedPtr(const void*) const override { return false; }
  long versionCuDNN() const override { return 91000; }  // only a CUDA build asks
  long versionRuntimeCuDNN() const override { return versionCuDNN(); }
};

C10_REGISTER_GUARD_IMPL(CUDA, Guard);
using at::CUDAHooksRegistry;
using at::RegistererCUDAHooksRegistry;
// A CUDA build has hooks of its own; these come before them.
C10_REGISTER_CLASS_WITH_PRIORITY(CUDAHooksRegistry, CUDAHooks, c10::REGISTRY_PREFERRED, Hooks)

}  // namespace

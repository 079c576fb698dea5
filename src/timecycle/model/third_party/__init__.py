"""Third-party encoders and hand-crafted features under the protocol of `Encoder`, for comparison or for use."""

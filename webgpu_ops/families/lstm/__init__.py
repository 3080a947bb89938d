"""LSTM layers."""
